/** A WebSocket as a connection. */

import { NO_ANSWER } from "../core/choice.js";
import type { Loss } from "../core/shell.js";
import { closeSocket, onRefused } from "../platform/node.js";
import { ConnectionLost, errorOfStatus } from "../wire/errors.js";
import { fromJson } from "../wire/text.js";
import type { Connection, Listener } from "./connection.js";

const SUBPROTOCOL = "pushlane.v1.json";
/** Scripts may close with 1000 and 3000 to 4999 only; to a server all but 1000 mean the same. */
const COME_BACK = 3001;
/** Bad credentials are bad over every transport. */
const ABOUT_US = [401, 403];

export function openSocket(
  make: typeof WebSocket,
  base: string,
  { onOpen, onHeard }: Listener,
  hangupMs: number,
  /** Whether another transport may do. */
  isChoosing: () => boolean,
): Connection {
  const socket = new make(`${base.replace("http", "ws")}/v1/ws`, SUBPROTOCOL);
  let wasOpen = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let end!: (loss?: Loss) => void;
  const over = new Promise<Loss>((resolve) => {
    end = (loss) => {
      clearTimeout(timer);
      const error = new ConnectionLost(`no connection to ${base}`);
      resolve(wasOpen ? { ...loss } : { refused: NO_ANSWER, error, ...loss });
    };
  });
  socket.onopen = () => {
    wasOpen = true;
    onOpen();
  };
  socket.onmessage = ({ data }) => onHeard([fromJson(data)]);
  socket.onclose = ({ code, reason }) => end(wasOpen ? { code, reason } : {});
  socket.onerror = () => {}; // a close follows, which says more
  onRefused(socket, (refused) => {
    const isUnsure = isChoosing() && !ABOUT_US.includes(refused);
    const error = isUnsure ? new ConnectionLost(`HTTP ${refused}`) : errorOfStatus(refused);
    end({ refused, error });
  });
  return {
    over,
    send(text) {
      if (socket.readyState === 1) socket.send(text);
    },
    hangUp(code) {
      timer = setTimeout(end, wasOpen ? hangupMs : 0);
      closeSocket(socket, code === 1000 ? code : COME_BACK);
    },
  };
}
