/* Listening sockets by address; see listener.h for what an address may be. */
#pragma once
#include "base.h"

struct listener_socket;
/* NULL, and a sentence in `why`, where it cannot be opened. `alone`: nobody else may have the
 * address, not even another listener of this process. */
struct listener_socket *listener_socket_open(const char *address, bool alone,
					     char why[256]) MUST_CHECK;
void listener_socket_close(struct listener_socket *socket);

int listener_socket_fd(const struct listener_socket *socket);
bool listener_socket_shared(const struct listener_socket *socket); /* by several loops */
const char *listener_socket_address(const struct listener_socket *socket); /* as bound */
