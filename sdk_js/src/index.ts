/** Pushlane: publish and consume messages that are pushed over a WebSocket, or long-polled. */

export {
  Client,
  connect,
  type ClientEventMap,
  type ConnectOptions,
  type ConsumeOptions,
  type HandlerErrorDetail,
  type PublishOptions,
  type StateDetail,
  type SubscribeOptions,
} from "./client.js";
export type { Handler } from "./consumption.js";
export type { Wish as Transport } from "./core/choice.js";
export type { State } from "./core/shell.js";
export { Item, type MessageOptions, type Published } from "./core/publication.js";
export type { Settings } from "./core/settings.js";
export type { AckMode } from "./core/subscription.js";
export type { Token } from "./driver.js";
export type { Dead, Message } from "./message.js";
export type { QueueSettings, Queues } from "./queues.js";
export type { Subscription } from "./subscription.js";
export type { Waiting } from "./ticket.js";
export { ConnectionLost, PushlaneError } from "./wire/errors.js";
export type * from "./wire/queues.js";
