/* The few words that every file uses. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MUST_CHECK                      __attribute__((warn_unused_result))
#define PRINTF_LIKE(at, first)          __attribute__((format(printf, at, first), nonnull(at)))
#define ARRAY_LEN(a)                    (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define SPAN(literal)                   ((struct span){ (literal), sizeof(literal) - 1 })

/* Bytes that somebody else owns. Not NUL-terminated; may hold any byte. */
struct span {
	const char *at;
	size_t len;
};

static inline struct span span_of(const char *text)
{
	return (struct span){ text, text ? strlen(text) : 0 };
}

static inline bool span_equal(struct span a, struct span b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.at, b.at, a.len) == 0);
}

/* An intrusive, circular, doubly linked list. A link that is in no list points to itself. */
struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_append(struct list *head, struct list *link)
{
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

/* Takes the link out of whatever list it is in; harmless where it is in none. */
static inline void list_remove(struct list *link)
{
	link->next->prev = link->prev;
	link->prev->next = link->next;
	list_init(link);
}

/* The first link, taken out; NULL where the list is empty. */
static inline struct list *list_shift(struct list *head)
{
	struct list *first = head->next;

	if (first == head)
		return NULL;
	list_remove(first);
	return first;
}

/* Moves all links of `from` to the end of `to`. */
static inline void list_move(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}
