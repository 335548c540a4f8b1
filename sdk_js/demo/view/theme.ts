/** Light or dark: as the system says, until somebody says otherwise. */

import { byId } from "./dom.js";

const KEY = "pushlane-demo-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

export function makeTheme(): void {
  const { dataset } = document.documentElement;
  const button = byId("theme");
  const isDark = () => (dataset["theme"] ? dataset["theme"] === "dark" : dark.matches);
  const say = () =>
    button.setAttribute("aria-label", `Use the ${isDark() ? "light" : "dark"} theme`);
  const kept = localStorage.getItem(KEY);
  if (kept) dataset["theme"] = kept;
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    dataset["theme"] = theme;
    localStorage.setItem(KEY, theme);
    say();
  });
  dark.addEventListener("change", say);
  say();
}
