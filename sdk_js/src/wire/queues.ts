// Made by scripts/wire.mjs from the wire's schema: change it there.

/** Why a message became a dead letter, and where it came from. */
export interface DeadInfo {
  cause: string;
  queue: string;
  id: string;
  attempts: number;
  deadAt: number;
  error?: string | null;
}

/** A message on its way out. Without receipt, fence and lease_ms where ack is "none". */
export interface DeliverMessage {
  id: string;
  attempt: number;
  publishedAt: number;
  body?: unknown;
  data?: string | null;
  receipt?: string | null;
  fence?: number | null;
  leaseMs?: number | null;
  key?: string | null;
  headers?: Record<string, string> | null;
  dead?: DeadInfo | null;
}

/** What `explain` answers. Times are wall-clock milliseconds. */
export interface Explanation {
  state: string;
  why: string;
  since?: number | null;
  until?: number | null;
  session?: string | null;
  client?: string | null;
  blockedBy?: string | null;
  attempts?: number;
  deliveries?: number;
  error?: string | null;
}

/** A queue to make; what is not given gets its default. */
export interface NewQueue {
  name: string;
  leaseMs?: number;
  maxAttempts?: number;
  maxDeliveries?: number;
  reserveMs?: number;
  backoffBaseMs?: number;
  backoffMaxMs?: number;
  consumerBackoffBaseMs?: number;
  consumerBackoffMaxMs?: number;
  dedupWindowMs?: number;
  maxMessageBytes?: number;
  maxMessages?: number;
  maxBytes?: number | null;
  overflow?: "dead_letter" | "drop_oldest" | "reject";
  autoExpand?: boolean;
  retentionMs?: number;
  retentionEnd?: "dead_letter" | "drop";
  archive?: "none" | "parquet";
  ordering?: "best_effort" | "sequence" | "timestamp";
  reorderWindowMs?: number | null;
  lateQueue?: string | null;
  lateToHead?: boolean;
  deadLetter?: string | null;
  shards?: number;
  encrypted?: boolean;
  durability?: "all" | "one" | "quorum";
  paused?: boolean;
}

/** Messages, perhaps none; `next` is the `after` of the next page. */
export interface PeekAnswer {
  messages: DeliverMessage[];
  next?: string | null;
}

/** How many messages went. */
export interface PurgeAnswer {
  purged: number;
}

/** A queue's configuration. What is not given gets its default, but for `paused`: that stays as it is. */
export interface QueueBody {
  leaseMs?: number;
  maxAttempts?: number;
  maxDeliveries?: number;
  reserveMs?: number;
  backoffBaseMs?: number;
  backoffMaxMs?: number;
  consumerBackoffBaseMs?: number;
  consumerBackoffMaxMs?: number;
  dedupWindowMs?: number;
  maxMessageBytes?: number;
  maxMessages?: number;
  maxBytes?: number | null;
  overflow?: "dead_letter" | "drop_oldest" | "reject";
  autoExpand?: boolean;
  retentionMs?: number;
  retentionEnd?: "dead_letter" | "drop";
  archive?: "none" | "parquet";
  ordering?: "best_effort" | "sequence" | "timestamp";
  reorderWindowMs?: number | null;
  lateQueue?: string | null;
  lateToHead?: boolean;
  deadLetter?: string | null;
  shards?: number;
  encrypted?: boolean;
  durability?: "all" | "one" | "quorum";
  paused?: boolean | null;
  name?: string | null;
  version?: number | null;
}

/** What is to change of a queue's configuration; null is the default. */
export interface QueueChanges {
  leaseMs?: number | null;
  maxAttempts?: number | null;
  maxDeliveries?: number | null;
  reserveMs?: number | null;
  backoffBaseMs?: number | null;
  backoffMaxMs?: number | null;
  consumerBackoffBaseMs?: number | null;
  consumerBackoffMaxMs?: number | null;
  dedupWindowMs?: number | null;
  maxMessageBytes?: number | null;
  maxMessages?: number | null;
  maxBytes?: number | null;
  overflow?: "dead_letter" | "drop_oldest" | "reject" | null;
  autoExpand?: boolean | null;
  retentionMs?: number | null;
  retentionEnd?: "dead_letter" | "drop" | null;
  archive?: "none" | "parquet" | null;
  ordering?: "best_effort" | "sequence" | "timestamp" | null;
  reorderWindowMs?: number | null;
  lateQueue?: string | null;
  lateToHead?: boolean | null;
  deadLetter?: string | null;
  shards?: number | null;
  encrypted?: boolean | null;
  durability?: "all" | "one" | "quorum" | null;
  paused?: boolean | null;
  name?: string | null;
  version?: number | null;
}

/** A queue of a list, with `stats` where they were asked for. */
export interface QueueListed {
  name: string;
  version: number;
  leaseMs?: number;
  maxAttempts?: number;
  maxDeliveries?: number;
  reserveMs?: number;
  backoffBaseMs?: number;
  backoffMaxMs?: number;
  consumerBackoffBaseMs?: number;
  consumerBackoffMaxMs?: number;
  dedupWindowMs?: number;
  maxMessageBytes?: number;
  maxMessages?: number;
  maxBytes?: number | null;
  overflow?: "dead_letter" | "drop_oldest" | "reject";
  autoExpand?: boolean;
  retentionMs?: number;
  retentionEnd?: "dead_letter" | "drop";
  archive?: "none" | "parquet";
  ordering?: "best_effort" | "sequence" | "timestamp";
  reorderWindowMs?: number | null;
  lateQueue?: string | null;
  lateToHead?: boolean;
  deadLetter?: string | null;
  shards?: number;
  encrypted?: boolean;
  durability?: "all" | "one" | "quorum";
  paused?: boolean;
  deleting?: boolean;
  stats?: Standing | null;
}

/** A queue: its configuration, and the version that changes with it. */
export interface QueueObject {
  name: string;
  version: number;
  leaseMs?: number;
  maxAttempts?: number;
  maxDeliveries?: number;
  reserveMs?: number;
  backoffBaseMs?: number;
  backoffMaxMs?: number;
  consumerBackoffBaseMs?: number;
  consumerBackoffMaxMs?: number;
  dedupWindowMs?: number;
  maxMessageBytes?: number;
  maxMessages?: number;
  maxBytes?: number | null;
  overflow?: "dead_letter" | "drop_oldest" | "reject";
  autoExpand?: boolean;
  retentionMs?: number;
  retentionEnd?: "dead_letter" | "drop";
  archive?: "none" | "parquet";
  ordering?: "best_effort" | "sequence" | "timestamp";
  reorderWindowMs?: number | null;
  lateQueue?: string | null;
  lateToHead?: boolean;
  deadLetter?: string | null;
  shards?: number;
  encrypted?: boolean;
  durability?: "all" | "one" | "quorum";
  paused?: boolean;
  deleting?: boolean;
}

/** Queues in order of name; `next` is the `after` of the next page. */
export interface QueuePage {
  queues: QueueListed[];
  next?: string | null;
}

/** How many are on their way (or would be). With `next` there may be more: repeat the request     with it as `after`. What died after the first request is not redriven. */
export interface RedriveAnswer {
  redriven: number;
  next?: string | null;
}

/** Which dead letters to send back: at most `max`, those with this `cause`, from this `queue`,     with this `key`, and that died from `from_at` on and before `until_at`. `to` sends them to     another queue instead, and `rate` limits how many are sent per second. `after` is the `next` of     the last answer. */
export interface RedriveBody {
  max?: number;
  to?: string | null;
  dryRun?: boolean;
  cause?:
    | "damaged"
    | "expired"
    | "late"
    | "max_attempts"
    | "max_deliveries"
    | "no_queue"
    | "overflow"
    | "rejected"
    | null;
  queue?: string | null;
  key?: string | null;
  fromAt?: number | null;
  untilAt?: number | null;
  rate?: number | null;
  after?: string;
}

/** How a queue is doing. null is what only another server could tell. */
export interface Standing {
  depth: number;
  inFlight: number | null;
  oldestAt: number | null;
  consumers: number | null;
  asOf: number;
}

/** A shard in numbers. Ended ones are counted since the shard was opened. */
export interface Stats {
  ready: number;
  reserved: number;
  leased: number;
  delayed: number;
  retrying: number;
  blocked: number;
  leaving: number;
  stuck: number;
  stored: number;
  bytes: number;
  pending: number;
  subscriptions: number;
  oldestAt: number | null;
  acked: number;
  dead: number;
  expired: number;
  retention: number;
  dropped: number;
  purged: number;
}
