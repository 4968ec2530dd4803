/* What the files of cli_leaves share; nobody else includes it. */
#pragma once
#include "cli_leaves.h"

void leaves_add(struct leaves *leaves, struct span label, struct span value);
/* A step of a JSON Pointer (RFC 6901). */
void leaves_put_step(struct buf *label, struct span name);

/* cli_leaves_json.c */
void leaves_json(struct span canonical, struct leaves *out);
void leaves_show_json(const struct leaves *leaves, struct span canonical, struct buf *out);

/* cli_leaves_fields.c */
void leaves_form(struct span canonical, struct leaves *out);
void leaves_multipart(struct span canonical, struct leaves *out);
