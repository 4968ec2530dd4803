/*
 * What may be sent again, and when; see recovery.h. The default of everything is: nothing.
 *
 * A resend goes to an upstream that knows a key again, so what it gets must be what it got: the
 * same bytes, within the time for which it remembers, a bounded number of times, the first at
 * once and each later one after twice the pause.
 */
#include "recovery.h"

#define GAP_MS     INT64_C(1000)
#define GAP_MAX_MS INT64_C(60000)

/* Each thread knows PostgreSQL's clock to within a round trip, so that to one of them the record of
 * another may be from the near future. */
#define CLOCKS_APART_MS INT64_C(5000)

/* Between the last resend and the next one. */
static int64_t gap_after(unsigned generation)
{
	int64_t gap = GAP_MS;

	for (unsigned i = 2; i < generation && gap < GAP_MAX_MS; i++)
		gap *= 2;
	return gap < GAP_MAX_MS ? gap : GAP_MAX_MS;
}

static struct recovery_ruling resend(const struct recovery_settings *settings,
				     const struct recovery_case *record)
{
	int64_t left =
		record->tried_ms < 0 ? 0 : gap_after(record->generation) - record->tried_ms;

	if (!record->same_raw || record->age_ms < -CLOCKS_APART_MS ||
	    record->age_ms >= settings->resend_window ||
	    record->generation >= settings->max_attempts)
		return (struct recovery_ruling){ RECOVER_HELD, 0 };
	if (left > 0)
		return (struct recovery_ruling){ RECOVER_HELD, left };
	return (struct recovery_ruling){ RECOVER_RESEND, 0 };
}

struct recovery_ruling recovery_of(const struct recovery_settings *settings,
				   const struct recovery_case *record)
{
	static const struct recovery_ruling held = { RECOVER_HELD, 0 };

	switch ((enum recovery_contract)settings->contract) {
	case RECOVERY_HOLD:
		break;
	case RECOVERY_RESEND:
		return resend(settings, record);
	case RECOVERY_LOOKUP:
		return (struct recovery_ruling){ RECOVER_LOOK_UP, 0 };
	case RECOVERY_AT_LEAST_ONCE:
		if (record->stale && record->generation == 1)
			return (struct recovery_ruling){ RECOVER_BEGIN_AGAIN, 0 };
		break;
	}
	return held;
}
