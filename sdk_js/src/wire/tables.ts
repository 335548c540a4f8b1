// Made by scripts/wire.mjs from the wire's schema: change it there.

/** A server's limits and their defaults, under their names on the wire. */
export const LIMITS = {
  frame_bytes: 4194304,
  batch: 1000,
  settle: 10000,
  credit: 10000,
  unanswered: 1024,
  inflight_bytes: 16777216,
  wait_ms: 60000,
  error_bytes: 1024,
};

export const MAX_RUN = 10000;

/** The HTTP status of each error code. */
export const STATUS: Record<string, number> = {
  bad_request: 400,
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  too_large: 413,
  throttled: 429,
  queue_full: 507,
  lease_lost: 409,
  conflict: 409,
  unavailable: 503,
  internal: 500,
};

/** From this status on, repeating the same request can succeed. */
export const RETRY = 429;

/** The close codes after which a client doesn't come back on its own, and what they stand for. */
export const CLOSES: Record<number, string> = {
  1002: "bad_request",
  1003: "bad_request",
  1007: "bad_request",
  1008: "unauthorized",
  1009: "too_large",
  4001: "taken_over",
};
