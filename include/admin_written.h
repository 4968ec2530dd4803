/* A value of a JSON text, byte for byte as it stands there. Pure. */
#pragma once
#include "mem.h"

/* What the JSON Pointer leads to; .at NULL: nothing, or the text is none that this program reads. */
struct span admin_written(struct arena *arena, struct span json, struct span pointer);
