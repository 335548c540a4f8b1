/** The wire's names and ours: `max_attempts` is `maxAttempts` here. */

/** `max_attempts` for `maxAttempts`. */
export const snake = (name: string): string =>
  name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/** `maxAttempts` for `max_attempts`. */
export const camel = (name: string): string =>
  name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());

/** With other names all the way down, but not in what users published. */
export function renamed(value: unknown, rename: (name: string) => string): unknown {
  if (Array.isArray(value)) return value.map((one) => renamed(one, rename));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [
      rename(name),
      name === "body" || name === "headers" ? inner : renamed(inner, rename),
    ]),
  );
}
