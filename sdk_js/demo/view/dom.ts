/** Small help with elements. */

type Child = Node | string;

/** An element with attributes and children; a class is `class`, a listener `onclick`. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | ((event: Event) => void)> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** The element of the page with this id. */
export function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/** Change a text only where it differs: screen readers and selections stay calm. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element: Element, name: string, isOn: boolean): void {
  if (element.classList.contains(name) !== isOn) element.classList.toggle(name, isOn);
}

/** Make these the children, in this order, moving as little as possible. */
export function setChildren(parent: Element, wanted: Element[]): void {
  wanted.forEach((child, at) => {
    if (parent.children[at] !== child) parent.insertBefore(child, parent.children[at] ?? null);
  });
  while (parent.children.length > wanted.length) parent.lastElementChild!.remove();
}

/** "2.1 s"; never below zero. */
export const seconds = (ms: number): string => `${(Math.max(0, ms) / 1000).toFixed(1)} s`;

export const number = (value: number): string => value.toLocaleString("en");

/** A choice of a few, with the keyboard's arrows: radio buttons that look like one control. */
export function segmented<T extends string>(
  label: string,
  choices: readonly (readonly [value: T, text: string])[],
  chosen: T,
  choose: (value: T) => void,
): HTMLElement {
  const name = `choice-${++lastChoice}`;
  const group = h("div", { class: "segmented", role: "radiogroup", "aria-label": label });
  for (const [value, text] of choices) {
    const input = h("input", { type: "radio", name, value, onchange: () => choose(value) });
    input.checked = value === chosen;
    group.append(h("label", {}, input, h("span", {}, text)));
  }
  return group;
}
let lastChoice = 0;
