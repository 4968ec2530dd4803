/*
 * What each status of an upstream means for the record (CONTRACT 5), worked out once: a written
 * list replaces its own default, and takes the statuses that it names out of the defaults of the
 * others; an exact status beats a class; what then stands in no list is unknown.
 */
#include "settings_internal.h"

#include <ctype.h>
#include <stdlib.h>

#define STATUS_FIRST 200U
#define STATUS_END   600U

/* For each list the statuses that it holds by default; a class is its hundreds alone. */
static const unsigned short store_default[] = { 2, 301, 302, 303, 402, 409, 410, 422, 0 };
static const unsigned short release_default[] = { 307, 308, 400, 401, 403, 404, 405, 407,
						  411, 412, 413, 414, 415, 417, 421, 423,
						  425, 426, 428, 429, 431, 0 };
static const unsigned short unknown_default[] = { 0 };

static const struct outcome_list {
	const char *name;
	enum outcome outcome;
	size_t offset;
	const unsigned short *fallback;
} lists[] = {
	{ "store", OUTCOME_STORE, offsetof(struct outcome_settings, store), store_default },
	{ "release", OUTCOME_RELEASE, offsetof(struct outcome_settings, release),
	  release_default },
	{ "unknown", OUTCOME_UNKNOWN, offsetof(struct outcome_settings, unknown),
	  unknown_default },
};

/* Which list names a status or a class, 0 where none does, else its place and one. */
struct written {
	unsigned char by_status[STATUS_END];
	unsigned char by_class[STATUS_END / 100];
};

/* "2xx" is 2, "402" is 402; 0 where it is neither. */
static unsigned parse(const char *text)
{
	unsigned long number = 0;

	if (strlen(text) != 3 || !isdigit((unsigned char)text[0]))
		return 0;
	if (strcmp(text + 1, "xx") == 0)
		number = (unsigned long)(text[0] - '0') * 100;
	else if (strspn(text, "0123456789") == 3)
		number = strtoul(text, NULL, 10);
	if (number < STATUS_FIRST || number >= STATUS_END)
		return 0;
	return (unsigned)(text[1] == 'x' ? number / 100 : number);
}

static void write_entry(struct loader *loader, const struct item *item, size_t list,
			struct written *written)
{
	unsigned entry = parse(item->text);
	unsigned char *by = NULL;

	if (entry == 0) {
		settings_error(loader, item,
			       "\"%s\" is no status: write \"402\", or \"4xx\" for a class, "
			       "from 200 to 599",
			       item->text);
		return;
	}
	by = entry < ARRAY_LEN(written->by_class) ? &written->by_class[entry]
						  : &written->by_status[entry];
	if (*by && *by != list + 1)
		settings_error(loader, item, "\"%s\" stands in `%s` and in `%s`", item->text,
			       lists[*by - 1].name, lists[list].name);
	*by = (unsigned char)(list + 1);
}

static void read_list(struct loader *loader, const struct item *item, size_t list,
		      struct written *written)
{
	for (size_t i = 0; item && item->kind == ITEM_LIST && i < item->n; i++)
		if (item->at[i].kind == ITEM_TEXT)
			write_entry(loader, &item->at[i], list, written);
}

static bool by_default(const struct outcome_list *list, unsigned status)
{
	for (const unsigned short *at = list->fallback; *at; at++)
		if (*at == status || *at == status / 100)
			return true;
	return false;
}

static bool is_written(const struct outcome_settings *outcome, const struct outcome_list *list)
{
	const option_texts *texts = (const void *)((const char *)outcome + list->offset);

	return texts->at != NULL;
}

static enum outcome outcome_of(const struct outcome_settings *outcome,
			       const struct written *written, unsigned status)
{
	unsigned char by = written->by_status[status];

	if (!by)
		by = written->by_class[status / 100];
	if (by)
		return lists[by - 1].outcome;
	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		if (!is_written(outcome, &lists[i]) && by_default(&lists[i], status))
			return lists[i].outcome;
	return OUTCOME_UNKNOWN;
}

void settings_outcome(struct loader *loader, const struct item *group,
		      struct idempotency_settings *idempotency)
{
	struct written written = { 0 };

	for (size_t i = 0; i < ARRAY_LEN(lists); i++)
		read_list(loader, item_find(group, lists[i].name), i, &written);
	for (unsigned status = STATUS_FIRST; status < STATUS_END; status++)
		idempotency->outcome_of[status] =
			(unsigned char)outcome_of(&idempotency->outcome, &written, status);
}

void settings_statuses(struct loader *loader, const struct item *item,
		       const struct texts *texts, unsigned char by_status[600])
{
	for (size_t i = 0; i < texts->n; i++) {
		unsigned entry = parse(texts->at[i]);
		unsigned first = entry < STATUS_END / 100 ? entry * 100 : entry;
		unsigned last = entry < STATUS_END / 100 ? first + 99 : entry;

		if (entry == 0)
			settings_error(loader, item ? &item->at[i] : NULL,
				       "\"%s\" is no status: write \"404\", or \"4xx\" for a "
				       "class, from 200 to 599",
				       texts->at[i]);
		for (unsigned status = first; entry && status <= last; status++)
			by_status[status] = 1;
	}
}
