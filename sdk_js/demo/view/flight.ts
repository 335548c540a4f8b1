/**
 * Chips that go from one place to another fly there, and those that are done fade.
 *
 * Before the page changes, `note` remembers where a chip is; afterwards `land` moves it there from
 * where it was. Who prefers less motion sees neither.
 */

const FLY_MS = 420;
const FADE_MS = 500;
const EASE = "cubic-bezier(.2,.75,.25,1)";
/** Flights at a time; more would only be noise. */
const MOST = 60;

const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Flight {
  private from = new Map<HTMLElement, DOMRect>();

  note(chip: HTMLElement): void {
    if (calm.matches || document.hidden || this.from.size >= MOST || !chip.isConnected) return;
    this.from.set(chip, chip.getBoundingClientRect());
  }

  land(): void {
    const flights = [...this.from].filter(([chip]) => chip.isConnected);
    const to = flights.map(([chip]) => chip.getBoundingClientRect());
    this.from.clear();
    flights.forEach(([chip, start], at) => {
      const end = to[at]!;
      const x = start.x + start.width / 2 - (end.x + end.width / 2);
      const y = start.y + start.height / 2 - (end.y + end.height / 2);
      if (!end.width || Math.abs(x) + Math.abs(y) < 4) return;
      chip.animate(
        [
          { translate: `${x}px ${y}px`, zIndex: 5 },
          { translate: "0 0", zIndex: 5 },
        ],
        {
          duration: FLY_MS,
          easing: EASE,
        },
      );
    });
  }

  /** A copy of it fades where it was. */
  fade(chip: HTMLElement): void {
    if (calm.matches || document.hidden || !chip.isConnected) return;
    const { x, y, width, height } = chip.getBoundingClientRect();
    if (y < -height || y > innerHeight) return;
    const ghost = chip.cloneNode(true) as HTMLElement;
    ghost.className = "chip ghost";
    ghost.removeAttribute("aria-label");
    ghost.setAttribute("aria-hidden", "true");
    ghost.style.cssText = "";
    Object.assign(ghost.style, {
      left: `${x + scrollX}px`,
      top: `${y + scrollY}px`,
      width: `${width}px`,
      height: `${height}px`,
    });
    document.body.append(ghost);
    const end = { opacity: 0, translate: "0 -22px", scale: 0.8 };
    ghost.animate([{ opacity: 1 }, end], { duration: FADE_MS, easing: "ease-out" }).onfinish = () =>
      ghost.remove();
  }
}
