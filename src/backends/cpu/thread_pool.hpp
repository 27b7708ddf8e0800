// Persistent worker threads that help a caller with its own loop.
#pragma once

namespace gemmule::cpu {

/// Calls body(context, slot) once in the calling thread with slot 0 and, as workers are free, in up to helpers other
/// threads with the slots 1..helpers; returns when all of them have returned. A body takes work items from a counter
/// that it shares with the others until none is left, so it is complete even if no worker joins: several callers may
/// be active at once, and a call never waits for a worker that is busy elsewhere. Workers are started on first use and
/// joined at process exit; a forked child starts its own.
using TeamBody = void (*)(void* context, int slot) noexcept;
void run_team(int helpers, TeamBody body, void* context);

}  // namespace gemmule::cpu
