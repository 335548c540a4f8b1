// The messages: JSON strings of 200 bytes that begin with their number, so that whoever gets one can
// tell which it is, and whether it came twice.

export const SIZE = 200;
export const MOST = 40_000_000; // messages of one run
const PAD = "x".repeat(SIZE - 2 - 10);

export function bodyOf(number) {
  return `"${String(number).padStart(10, "0")}${PAD}"`;
}

// `body` is what the adapter's client library made of it: the string itself, its JSON, or that as
// bytes.
export function numberOf(body) {
  if (typeof body !== "string") return numberIn(body);
  if (body.length === SIZE) return +body.slice(1, 11);
  if (body.length === SIZE - 2) return +body.slice(0, 10);
  throw new Error(`a body of ${body.length} characters`);
}

function numberIn(bytes) {
  if (bytes.length !== SIZE) throw new Error(`a body of ${bytes.length} bytes`);
  let number = 0;
  for (let i = 1; i < 11; i++) number = number * 10 + bytes[i] - 48;
  return number;
}

// Which numbers came, and how many came again.
export class Seen {
  constructor(most) {
    this.flags = new Uint8Array(most);
    this.again = 0;
    this.count = 0;
  }

  add(number) {
    if (this.flags[number]) this.again++;
    else {
      this.flags[number] = 1;
      this.count++;
    }
  }
}
