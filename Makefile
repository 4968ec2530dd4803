# onceward
#
#   make                 build/onceward
#   make test            unit and contract tests: no database, no network, seconds
#   make mutants         no mutant of the exchange may pass its tests
#   make model           every state of the protocol, walked by spin; rules broken on purpose are noticed
#   make sql             the ledger against a real PostgreSQL
#   make e2e             real gateways, a real PostgreSQL, a scripted API; T=word: tests named so
#   make torture         gateways, PostgreSQL and wires fail at random; SEED=N, TORTURE_SECONDS=300
#   make lint            format, clang-tidy, cppcheck, shellcheck, layers, banned calls
#   make check           lint, all tests, and the tests again under the sanitizers: what CI runs
#   make run             a private PostgreSQL, a sample API, the gateway, and a first tour
#   make bench           ratios against nginx, in one run
#   make fuzz T=http1    fuzz one target for SECONDS=60; `make test` replays what was ever found
#   make install         to PREFIX=/usr/local, below DESTDIR
#   make clean           remove everything that was built
#   make help            this text
#
# CC=clang builds with clang. SAN=address,undefined or SAN=thread builds into a folder of its own.
# WERROR=1 makes every warning an error. BROKEN=lease_releases builds, into a folder of its own, a
# program that breaks its promise: some of its statements come from tests/torture/lease_releases/.

CC      ?= cc
PKGS    := libmicrohttpd libcurl libpq openssl jansson libconfig zlib
SAN     ?=
PREFIX  ?= /usr/local
SECONDS ?= 60
TORTURE_SECONDS ?= 300
BROKEN  ?=
comma   := ,
B       := build$(if $(SAN),-$(subst $(comma),-,$(SAN)))$(if $(findstring clang,$(CC)),-clang)$(if $(BROKEN),-broken-$(BROKEN))

CFLAGS  += -std=gnu17 -O2 -g -pthread -fno-common -fno-omit-frame-pointer
CFLAGS  += -fstack-protector-strong -fPIE
CFLAGS  += -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings
CFLAGS  += -Wformat=2 -Wvla -Wundef -Wpointer-arith -Wswitch-enum -Wcast-qual
# gcc warns of paths that only a sanitizer's instrumentation has: no errors there.
CFLAGS  += $(if $(WERROR),$(if $(SAN),,-Werror)) $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all,-D_FORTIFY_SOURCE=2)
CPPFLAGS += -Iinclude -I$(B) -D_GNU_SOURCE $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
CPPFLAGS += $(if $(BROKEN),'-DONCEWARD_BROKEN=" BROKEN: $(BROKEN)"')
LDFLAGS += -pie -Wl,-z,relro,-z,now $(if $(SAN),-fsanitize=$(SAN))
LDLIBS  += $(shell pkg-config --libs $(PKGS) 2>/dev/null) -pthread

SRC     := $(wildcard src/*.c)
OBJ     := $(patsubst src/%.c,$(B)/%.o,$(filter-out src/main.c,$(SRC)))
UNIT    := $(patsubst %.c,$(B)/%,$(notdir $(wildcard tests/unit/test_*.c tests/contract/test_*.c)))
QUERIES := $(foreach query,$(wildcard sql/query/*.sql),\
	$(or $(if $(BROKEN),$(wildcard tests/torture/$(BROKEN)/$(notdir $(query)))),$(query)))
SQL     := $(patsubst tests/sql/%.c,$(B)/%,$(wildcard tests/sql/test_*.c))
FUZZ    := $(patsubst tests/fuzz/%.c,$(B)/%,$(wildcard tests/fuzz/fuzz_*.c))

all: $(B)/onceward

$(B)/onceward: $(B)/main.o $(B)/libonceward.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(B)/libonceward.a: $(OBJ)
	@rm -f $@
	$(AR) rcs $@ $^

$(B)/%.o: src/%.c $(B)/queries.def $(B)/schema.def | $(B)
	$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c -o $@ $<

# The SQL that the program sends is the SQL that people read: sql/ becomes two tables.
$(B)/queries.def: $(QUERIES) scripts/sql-table | $(B)
	scripts/sql-table QUERY $(QUERIES) > $@.new && mv $@.new $@
$(B)/schema.def: $(wildcard sql/schema/*.sql) scripts/sql-table | $(B)
	scripts/sql-table SCHEMA sql/schema/*.sql > $@.new && mv $@.new $@

# A test that defines a function itself keeps the real one out: it comes first.
TEST = $(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -o $@ $< $(filter tests/fuzz/replay.c %.a,$^) $(LDFLAGS) $(LDLIBS)
$(B)/test_%: tests/unit/test_%.c $(B)/libonceward.a
	$(TEST) $(shell pkg-config --libs check)
$(B)/test_%: tests/contract/test_%.c $(B)/libonceward.a
	$(TEST) $(shell pkg-config --libs check)
$(B)/test_%: tests/sql/test_%.c $(B)/libonceward.a
	$(TEST) $(shell pkg-config --libs check)
$(B)/bench_%: tests/bench/bench_%.c $(B)/libonceward.a
	$(TEST)
$(B)/fuzz_%: tests/fuzz/fuzz_%.c tests/fuzz/replay.c $(B)/libonceward.a
	$(TEST)

$(B):
	mkdir -p $@

test: $(UNIT) $(FUZZ)
	@bad=0; for t in $(UNIT); do $$t || bad=1; done; exit $$bad
	@bad=0; for t in $(FUZZ); do echo $$t: tests/regress/$${t##*/fuzz_}; \
		find tests/regress/$${t##*/fuzz_} -type f -exec $$t {} + || bad=1; done; exit $$bad

mutants: $(B)/queries.def
	tests/contract/mutants $(B)

model:
	tests/model/run

sql: $(SQL) $(B)/onceward
	@bad=0; for t in $(SQL); do $$t || bad=1; done; exit $$bad

e2e: $(B)/onceward
	tests/e2e/run --onceward $(B)/onceward $(T)

torture: $(B)/onceward
	tests/torture/run --onceward $(B)/onceward --seconds $(TORTURE_SECONDS) $(if $(SEED),--seed $(SEED))

lint: $(B)/onceward
	@scripts/lint

check:
	@tests/all

run: $(B)/onceward
	@ONCEWARD=$(B)/onceward exec scripts/run-demo $(ONCE)

bench: $(B)/onceward $(B)/bench_canonical
	tests/bench/run
	$(B)/bench_canonical

# Coverage comes from instrumenting all of the program, so it is compiled once more, in one go.
fuzz: $(B)/queries.def $(B)/schema.def
	@mkdir -p build-fuzz/$(T) tests/regress/$(T)
	clang $(CPPFLAGS) -std=gnu17 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -o build-fuzz/fuzz_$(T) \
		tests/fuzz/fuzz_$(T).c $(filter-out src/main.c,$(SRC)) $(LDLIBS)
	build-fuzz/fuzz_$(T) -max_total_time=$(SECONDS) -artifact_prefix=tests/regress/$(T)/ \
		build-fuzz/$(T) tests/regress/$(T)

install: $(B)/onceward
	$(if $(BROKEN),$(error a build with BROKEN set is for tests, and is not installed))
	install -D -m 755 $(B)/onceward $(DESTDIR)$(PREFIX)/bin/onceward
	install -D -m 644 gateway.conf.example $(DESTDIR)$(PREFIX)/share/doc/onceward/gateway.conf.example

help:
	@awk '!/^#/ { exit } { sub(/^# ?/, ""); print }' Makefile

clean:
	rm -rf build build-*

.PHONY: all test mutants model sql e2e torture lint check run bench fuzz install help clean
.SECONDARY:
-include $(wildcard $(B)/*.d)
