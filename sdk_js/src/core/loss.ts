/** The end of a connection, or of an attempt at one, as a transport tells of it. */

import type { PushlaneError } from "../wire/errors.js";

/** What is known of the end of a connection. */
export interface Loss {
  code?: number;
  reason?: string;
  /** Where more is known. */
  error?: PushlaneError | undefined;
  /** The HTTP status in place of an upgrade, NO_ANSWER for none; undefined: it was not asked
   * for. */
  refused?: number | undefined;
}
