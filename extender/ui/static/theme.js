// Light, dark, or as the system has it.
import { at } from "./dom.js";

const KEY = "gangshare-theme", THEMES = ["auto", "light", "dark"];

export function themes() {
  const choice = at("theme"), kept = localStorage.getItem(KEY);
  choice.value = THEMES.includes(kept) ? kept : "auto";
  const apply = () => { document.documentElement.dataset.theme = choice.value; };
  choice.addEventListener("change", () => { localStorage.setItem(KEY, choice.value); apply(); });
  apply();
}
