/*
 * The ledger's face: what exchanges ask, and the life of an entry between the asking and the
 * answer. An entry is in one queue at a time, `state` says which; a flush at the end of the turn
 * turns queues into batches (ledger_write.c) and reads (ledger_read.c).
 *
 * Two clocks run over an entry. Its exchange waits until a deadline and then gets the honest
 * answer: not available, or not recorded in time. The ledger itself goes on until it knows: a
 * reservation that turns out to be won after its exchange has given up is released, a settle is
 * repeated until it is written.
 */
#include "ledger_internal.h"

#include "field_lines.h"
#include "log.h"

#include <assert.h>
#include <stdio.h>
#include <unistd.h>

static void tick(struct loop_timer *timer);

void entry_queue(struct ledger *ledger, struct ledger_entry *entry, struct list *queue,
		 enum entry_state state)
{
	if (entry->state == ENTRY_IDLE) {
		list_append(&ledger->busy, &entry->busy_link);
		ledger->n_busy++;
	}
	list_remove(&entry->link);
	list_append(queue, &entry->link);
	entry->state = state;
}

static void entry_idle(struct ledger *ledger, struct ledger_entry *entry)
{
	assert(entry->state != ENTRY_IDLE);
	list_remove(&entry->link);
	list_remove(&entry->busy_link);
	ledger->n_busy--;
	entry->state = ENTRY_IDLE;
}

void entry_answer(struct ledger *ledger, struct ledger_entry *entry)
{
	entry->answered = true;
	entry->took_us = loop_now_us(ledger->loop) - entry->asked_us;
	entry->done(entry);
}

/* The ledger has nothing more to do for it. */
void entry_conclude(struct ledger *ledger, struct ledger_entry *entry)
{
	entry_idle(ledger, entry);
	if (!entry->answered) {
		entry_answer(ledger, entry);
	} else if (entry->left) {
		entry->gone(entry);
	}
}

void entry_found(struct ledger *ledger, struct ledger_entry *entry, enum ledger_found found,
		 const char *why)
{
	if (!entry->answered) { /* else its exchange has gone by another answer */
		entry->found = found;
		entry->why = why;
		if (found == LEDGER_COMPLETED && entry->retained && entry->same == LEDGER_SAME)
			replays_count(ledger, entry);
	}
	if (entry->fenced) {
		entry_settled(ledger, entry, LEDGER_FENCED);
		return;
	}
	metrics_observe(ledger->metrics, METRIC_ledger_seconds, STEP_RESERVE,
			loop_now_us(ledger->loop) - entry->asked_us);
	entry_conclude(ledger, entry);
}

void entry_settled(struct ledger *ledger, struct ledger_entry *entry,
		   enum ledger_settled settled)
{
	metrics_observe(ledger->metrics, METRIC_ledger_seconds, STEP_SETTLE,
			loop_now_us(ledger->loop) - entry->asked_us);
	if (!entry->answered)
		entry->settled = settled;
	if (settled == LEDGER_SETTLED && entry->generation == 1)
		history_ended(ledger, entry);
	if (settled == LEDGER_SETTLED && entry->outcome == LEDGER_COMPLETE)
		metrics_add(ledger->metrics, METRIC_stored_bytes_total, 0,
			    entry->fields.len + entry->result.body.len);
	unsettled_end(ledger, entry);
	waiters_wake(ledger, entry->generation > 1 ? entry->record_op_id : entry->op_id);
	entry_conclude(ledger, entry);
}

void entry_fenced(struct ledger *ledger, struct ledger_entry *entry)
{
	if (entry->answered) {
		entry_settled(ledger, entry, LEDGER_FENCED);
		return;
	}
	entry->fenced = true;
	entry->waiting = false;
	if (entry->generation == 1) {
		entry->record_op_id = entry->op_id;
		entry->record_day = entry->day;
	}
	entry_queue(ledger, entry, &ledger->to_read_record, ENTRY_TO_READ_RECORD);
}

/* The first attempt's end goes into the first slot, with many; a later one's by itself. */
static void settle(struct ledger *ledger, struct ledger_entry *entry)
{
	if (entry->outcome == LEDGER_COMPLETE)
		entry->fields = field_lines(entry->arena, &entry->result.fields);
	if (entry->generation > 1) {
		entry_queue(ledger, entry, &ledger->to_late, ENTRY_TO_CONCLUDE);
		return;
	}
	if (entry->outcome == LEDGER_COMPLETE)
		row_hash(ledger, entry, entry->op_id,
			 &(struct row){ 1, entry->result.status, entry->fields,
					entry->result.body },
			 entry->hash);
	entry_queue(ledger, entry, &ledger->to_settle, ENTRY_TO_SETTLE);
}

/* Until when the upstream knows the key again, by the loop's clock; 0: that does not matter. */
static int64_t window_ends_ms(const struct ledger *ledger, const struct ledger_entry *entry)
{
	int64_t age = ledger_clock_us(ledger) / 1000 - op_id_ms(entry->record_op_id);
	int64_t ends =
		loop_now(ledger->loop) + entry->idempotency->recovery.resend_window - age;

	if (entry->generation == 1)
		return 0;
	return ends > 0 ? ends : 1;
}

/* What is stopped is not known any more, after a long sleep or behind a slow commit: it is asked for again
 * under the same name, which has to wait until it is. */
static void won_again(struct ledger *ledger, struct ledger_entry *entry)
{
	entry->doubt = true;
	if (entry->generation == 1)
		entry_queue(ledger, entry, &ledger->to_reserve, ENTRY_TO_RESERVE);
	else
		entry_queue(ledger, entry, &ledger->to_late, ENTRY_TO_CLAIM);
}

/* A stop may have come since it was asked for. */
static void refuse_stopped(struct ledger *ledger, struct ledger_entry *entry)
{
	const char *why = stops_stop(ledger, entry);

	if (!why)
		return;
	entry->found = LEDGER_STOPPED;
	entry->why = why;
	entry->no_record = entry->generation == 1 && stops_vouch(ledger, entry);
	entry_answer(ledger, entry);
}

/*
 * Reserved, or claimed, durably. Where its exchange has given up, or may not send, a reservation is given
 * back; of a claim nothing is ever free again (CONTRACT 5), so it ends as what it was: unknown.
 */
void entry_won(struct ledger *ledger, struct ledger_entry *entry)
{
	if (entry->generation == 1)
		row_request_id(ledger, entry->op_id, entry->day, entry->request_id);
	if (!entry->answered && !stops_known(ledger)) {
		won_again(ledger, entry);
		return;
	}
	if (!entry->answered)
		refuse_stopped(ledger, entry);
	if (entry->answered) {
		entry->outcome = entry->generation == 1 ? LEDGER_RELEASE : LEDGER_MARK_UNKNOWN;
		entry->cause = "the ledger answered too late";
		settle(ledger, entry);
		unsettled_begin(ledger, entry, false);
		return;
	}
	if (entry->generation == 1) {
		entry->first_seen = op_id_ms(entry->op_id) / 1000;
		entry->same = LEDGER_SAME; /* whatever stood there before was about */
		history_won(ledger, entry);
	}
	entry->lease_until_ms = entry->sent_ms + entry->idempotency->lease;
	entry->begin_by_ms = window_ends_ms(ledger, entry);
	if (entry->idempotency->key.forward_how == KEY_FORWARD_DERIVED)
		entry->forward_key = row_derived_key(ledger, entry);
	entry_found(ledger, entry, LEDGER_WON, NULL);
}

/* The tick is slow while nothing is asked. */
static void arm(struct ledger *ledger)
{
	if (!loop_timer_set(&ledger->tick) ||
	    ledger->tick.at > loop_now(ledger->loop) + LEDGER_TICK_MS + 1)
		loop_timer(ledger->loop, &ledger->tick, LEDGER_TICK_MS);
}

/* From now on the entry is busy, and its exchange waits `within` at most. */
static void ask(struct ledger *ledger, struct ledger_entry *entry, int64_t within)
{
	assert(entry->state == ENTRY_IDLE && !entry->left);
	entry->answered = false;
	entry->asked_us = loop_now_us(ledger->loop);
	entry->deadline_ms = loop_now(ledger->loop) + within;
	arm(ledger);
}

void ledger_reserve(struct ledger *ledger, struct ledger_entry *entry)
{
	list_init(&entry->link);
	list_init(&entry->busy_link);
	entry->state = ENTRY_IDLE;
	entry->left = entry->waiting = entry->looked_up = entry->doubt = entry->suspect = false;
	entry->fenced = entry->stopped = entry->sent = entry->no_record = false;
	entry->sent_ms = entry->op_id = entry->record_op_id = 0;
	entry->tries = 0;
	entry->generation = 1;
	entry->unsettled = 0;
	entry->spooled = false;
	entry->request_id[0] = 0;
	ask(ledger, entry, ledger->settings->ledger.timeout);
	entry_queue(ledger, entry, &ledger->to_reserve, ENTRY_TO_RESERVE);
}

void ledger_claim(struct ledger *ledger, struct ledger_entry *entry)
{
	assert(entry->found == LEDGER_UNKNOWN && entry->record_op_id);
	ask(ledger, entry, ledger->settings->ledger.timeout);
	entry->waiting = entry->sent = false;
	entry->generation++;
	entry_queue(ledger, entry, &ledger->to_late, ENTRY_TO_CLAIM);
}

void ledger_begin_again(struct ledger *ledger, struct ledger_entry *entry)
{
	assert(entry->found == LEDGER_UNKNOWN && entry->stale);
	ask(ledger, entry, ledger->settings->ledger.timeout);
	entry->waiting = entry->sent = false;
	entry_queue(ledger, entry, &ledger->to_late, ENTRY_TO_CLEAR);
}

static void wait(struct ledger *ledger, struct ledger_entry *entry, int64_t wait_ms)
{
	ask(ledger, entry, wait_ms);
	entry->waiting = true;
	entry->poll_every_ms = 10;
	entry->poll_at_ms = loop_now(ledger->loop) + entry->poll_every_ms;
	entry_queue(ledger, entry, &ledger->waiting, ENTRY_WAITING);
}

void ledger_wait(struct ledger *ledger, struct ledger_entry *entry, int64_t wait_ms)
{
	assert(entry->found == LEDGER_IN_FLIGHT);
	wait(ledger, entry, wait_ms);
}

void ledger_look_up(struct ledger *ledger, struct ledger_entry *entry, int64_t wait_ms)
{
	assert(entry->found == LEDGER_UNKNOWN);
	entry->looked_up = true;
	entry->sent = false; /* the back office is asked with the first look */
	wait(ledger, entry, wait_ms);
}

void ledger_settle(struct ledger *ledger, struct ledger_entry *entry, int64_t wait_ms)
{
	assert(entry->found == LEDGER_WON);
	ask(ledger, entry, wait_ms);
	settle(ledger, entry);
}

void ledger_leave(struct ledger *ledger, struct ledger_entry *entry)
{
	(void)ledger;
	assert(!entry->left && entry->answered);
	entry->left = true;
	if (entry->state == ENTRY_IDLE)
		entry->gone(entry);
}

size_t ledger_busy(const struct ledger *ledger)
{
	return ledger->n_busy;
}

/* Nothing of it has left for PostgreSQL: it can simply be taken back. */
bool entry_never_sent(const struct ledger_entry *entry)
{
	return entry->state == ENTRY_TO_RESERVE && entry->sent_ms == 0;
}

/* Is it certain that no row is this entry's, and does no read under way hold it? */
static bool nothing_left_behind(const struct ledger_entry *entry)
{
	bool late = entry->state == ENTRY_TO_CLAIM || entry->state == ENTRY_TO_CLEAR;

	return entry_never_sent(entry) || entry->state == ENTRY_WAITING ||
	       (late && !entry->sent) ||
	       (entry->state == ENTRY_TO_READ_RECORD && !entry->fenced) ||
	       entry->state == ENTRY_TO_FREE;
}

/* The exchange has waited long enough. What it asked for goes on where it may have an effect. */
static void give_up(struct ledger *ledger, struct ledger_entry *entry)
{
	bool settling = entry->state >= ENTRY_TO_SETTLE || entry->fenced;

	if (!settling && !entry->waiting)
		entry->found = LEDGER_UNAVAILABLE;
	entry->settled = LEDGER_LATE;
	entry->why = atomic_load(&ledger->why);
	if (!entry->why)
		entry->why = "it did not answer in time";
	if (nothing_left_behind(entry)) {
		entry_conclude(ledger, entry);
		return;
	}
	if (settling)
		unsettled_begin(ledger, entry, true);
	entry_answer(ledger, entry);
}

static void tick(struct loop_timer *timer)
{
	struct ledger *ledger = container_of(timer, struct ledger, tick);
	int64_t now = loop_now(ledger->loop);
	struct list *next = NULL;

	instance_renew(ledger, now);
	session_recheck(ledger);
	keys_look(ledger, now);
	stops_poll(ledger, now);
	history_look(ledger, now);
	replays_write(ledger, now);
	waiters_due(ledger, now);
	for (struct list *at = ledger->busy.next; at != &ledger->busy; at = next) {
		struct ledger_entry *entry = container_of(at, struct ledger_entry, busy_link);

		next = at->next;
		if (!entry->answered && now >= entry->deadline_ms)
			give_up(ledger, entry);
	}
	loop_timer(ledger->loop, &ledger->tick,
		   ledger->n_busy ? LEDGER_TICK_MS : LEDGER_IDLE_TICK_MS);
}

/* Away for longer than a request may wait: no use to let it wait. */
static void refuse_while_away(struct ledger *ledger)
{
	struct list queue;
	struct list *at = NULL;
	bool refused = false;

	if (ledger_ready(ledger) || list_empty(&ledger->to_reserve) || !ledger->down_since_ms ||
	    loop_now(ledger->loop) - ledger->down_since_ms < ledger->settings->ledger.timeout)
		return;
	list_init(&queue);
	list_move(&queue, &ledger->to_reserve);
	while ((at = list_shift(&queue)) != NULL) {
		struct ledger_entry *entry = container_of(at, struct ledger_entry, link);

		list_append(&ledger->to_reserve, at);
		if (!entry_never_sent(entry))
			continue;
		refused = true;
		entry_found(ledger, entry, LEDGER_UNAVAILABLE, atomic_load(&ledger->why));
	}
	if (refused)
		loop_wake(ledger->loop); /* answers were given behind the listener's back */
}

void ledger_flush(struct ledger *ledger)
{
	unsettled_refuse(ledger);
	refuse_while_away(ledger);
	ledger_read(ledger);
	ledger_free_keys(ledger);
	ledger_late(ledger);
	ledger_write(ledger);
	for (size_t i = 0; i < ledger->n_links; i++)
		pg_flush(ledger->links[i].pg);
}

static void link_up(void *arg)
{
	session_begin(arg);
}

/* All its transactions have ended as lost by now, and their entries are in their queues again. */
static void link_down(void *arg, const char *why)
{
	struct ledger_link *link = arg;
	struct ledger *ledger = link->ledger;

	if (link->checked)
		log_warning(ledger->who, "the connection to PostgreSQL was lost: %s", why);
	else if (strncmp(why, ledger->last_down, sizeof(ledger->last_down) - 1) != 0)
		log_warning(ledger->who, "PostgreSQL can't be used: %s", why);
	snprintf(ledger->last_down, sizeof(ledger->last_down), "%s", why);
	if (!link->checked && strstr(why, "cannot be prepared"))
		atomic_store(&ledger->why,
			     "its tables can't be used: has `onceward migrate` been run?");
	link->checked = false;
	if (!ledger_any_link(ledger) && !ledger->down_since_ms)
		ledger->down_since_ms = loop_now(ledger->loop);
	session_publish(ledger);
}

static void link_open(struct ledger *ledger, struct ledger_link *link)
{
	const struct pg_options options = { .conninfo = ledger->settings->ledger.conninfo,
					    .prepared = ledger->settings->ledger.prepared,
					    .who = ledger->who,
					    .up = link_up,
					    .down = link_down,
					    .arg = link };

	link->ledger = ledger;
	link->pg = pg_new(ledger->loop, &options);
}

struct ledger *ledger_new(struct loop *loop, struct metrics *metrics,
			  const struct settings *settings, unsigned index)
{
	struct ledger *ledger = mem_alloc(sizeof(*ledger));
	struct list *const lists[] = { &ledger->to_reserve,  &ledger->to_settle,
				       &ledger->to_read_key, &ledger->to_read_record,
				       &ledger->to_check,    &ledger->to_free,
				       &ledger->to_late,     &ledger->waiting,
				       &ledger->busy };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		list_init(lists[i]);
	ledger->loop = loop;
	ledger->metrics = metrics;
	ledger->settings = settings;
	settings_hold(settings);
	ledger->index = index;
	snprintf(ledger->who, sizeof(ledger->who), "ledger %u", index);
	gethostname(ledger->gateway, sizeof(ledger->gateway) - 16);
	snprintf(ledger->gateway + strlen(ledger->gateway), 16, " worker %u", index);
	ledger->instance = -1;
	atomic_store(&ledger->missing_key, LEDGER_KEYS_NOT_KNOWN);
	random_bytes(&ledger->token, sizeof(ledger->token));
	ledger->limit = ledger->read_limit = (size_t)settings->ledger.batch_max;
	ledger->sorted = mem_alloc(ledger->limit * sizeof(struct ledger_entry *));
	ledger->row_hasher = hash_new();
	ledger->stops = stops_new(ledger);
	ledger->replays = replays_new(ledger);
	ledger->tick.due = tick;
	ledger->down_since_ms = loop_now(loop);
	pg_params_init(&ledger->params);
	atomic_store(&ledger->why, "PostgreSQL has not answered yet");
	ledger_limit(ledger, (size_t)settings->limits.in_flight / 4,
		     (size_t)settings->limits.bytes_in_flight / 4);
	ledger->n_links = (size_t)settings->ledger.connections;
	for (size_t i = 0; i < ledger->n_links; i++)
		link_open(ledger, &ledger->links[i]);
	arm(ledger);
	return ledger;
}

void ledger_free(struct ledger *ledger)
{
	instance_return(ledger);
	for (size_t i = 0; i < ledger->n_links; i++) /* what ends now asks none of them */
		ledger->links[i].checked = false;
	for (size_t i = 0; i < ledger->n_links; i++)
		pg_free(ledger->links[i].pg);
	loop_timer_stop(ledger->loop, &ledger->tick);
	pg_params_fini(&ledger->params);
	hash_free(ledger->row_hasher);
	stops_free(ledger->stops);
	replays_free(ledger->replays);
	if (ledger->key_hasher)
		hash_free(ledger->key_hasher);
	mem_free(ledger->sorted);
	mem_free(ledger->identities);
	settings_release(ledger->settings);
	mem_free(ledger);
}

void ledger_follow(struct ledger *ledger, const struct settings *settings)
{
	settings_hold(settings);
	settings_release(ledger->settings);
	ledger->settings = settings;
	ledger->followed++;
	session_recheck(ledger);
}
