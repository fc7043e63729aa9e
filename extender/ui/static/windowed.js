// A list of which only the visible rows are in the document, with the keys of a grid.
import { make } from "./dom.js";

const BEYOND = 2;
/** Rows that are made in one frame while the list scrolls; the others follow in the next. */
const IN_ONE_FRAME = 20;

export class Windowed {
  #items = [];
  #drawn = new Map();
  #current = { item: 0, cell: 0 };
  #asked = false;
  #all = false;
  #focused = false;
  #width = 0;

  /**
   * `box` scrolls. Items have `height` pixels; as many stand side by side as have `least` pixels. `draw(item)` makes a
   * row whose cells have `data-cell`, `open(item, cell)` is called when a cell is chosen.
   */
  constructor(box, { height, least = Infinity, draw, open }) {
    Object.assign(this, { box, height, least, draw, open });
    this.body = make("div", "window", { role: "rowgroup" });
    box.replaceChildren(this.body);
    box.addEventListener("scroll", () => this.#soon(), { passive: true });
    box.addEventListener("keydown", (event) => this.#key(event));
    box.addEventListener("click", (event) => this.#open(event.target));
    new ResizeObserver(() => this.#soon()).observe(box);
    addEventListener("beforeprint", () => this.#print(true));
    addEventListener("afterprint", () => this.#print(false));
  }

  /** Shows these items; rows of items that are the same objects stay, unless `anew`. */
  show(items, anew = false) {
    this.#items = items;
    if (anew) this.#clear();
    this.box.setAttribute("aria-rowcount", items.length);
    this.#paint();
  }

  #clear() {
    this.#focused = this.box.contains(document.activeElement);
    for (const { row } of this.#drawn.values()) row.remove();
    this.#drawn.clear();
  }

  get #columns() {
    return Math.max(1, Math.floor(this.box.clientWidth / this.least));
  }

  #soon() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => { this.#asked = false; this.#paint(this.#all ? Infinity : IN_ONE_FRAME); });
  }

  #print(all) {
    this.#all = all;
    this.#paint();
  }

  /** Draws the rows in sight, but makes `most` at most. */
  #paint(most = Infinity) {
    const columns = this.#columns, lines = Math.ceil(this.#items.length / columns);
    if (columns !== this.#width) this.#clear();
    this.#width = columns;
    const top = Math.floor(this.box.scrollTop / this.height), seen = Math.ceil(this.box.clientHeight / this.height);
    const [first, last] = this.#all ? [0, lines] : [Math.max(0, top - BEYOND), Math.min(lines, top + seen + BEYOND)];
    this.body.style.height = `${lines * this.height}px`;
    const focused = this.#focused || this.box.contains(document.activeElement);
    this.#focused = false;
    for (const [index, { item, row }] of this.#drawn) {
      if (index >= first * columns && index < last * columns && this.#items[index] === item) continue;
      row.remove();
      this.#drawn.delete(index);
    }
    let next = this.body.firstChild;
    for (let index = first * columns; index < Math.min(last * columns, this.#items.length); index++) {
      const row = this.#drawn.get(index)?.row;
      if (row) next = row.nextSibling;
      else if (most-- > 0) this.body.insertBefore(this.#made(index, columns), next);
      else { this.#soon(); break; }
    }
    this.#mark(focused && !this.box.contains(document.activeElement));
  }

  #made(index, columns) {
    const item = this.#items[index], row = this.draw(item);
    row.setAttribute("aria-rowindex", index + 1);
    row.dataset.index = index;
    const [line, place] = [Math.floor(index / columns), index % columns];
    row.style.cssText += `;top:${line * this.height}px;left:${(place * 100) / columns}%;width:${100 / columns}%;height:${this.height}px`;
    this.#drawn.set(index, { item, row });
    return row;
  }

  #cells(index) {
    return [...(this.#drawn.get(index)?.row.querySelectorAll("[data-cell]") || [])];
  }

  /** One cell can be reached by Tab: the current one, or else the first that is drawn. */
  #mark(focus) {
    for (const cell of this.body.querySelectorAll('[tabindex="0"]')) cell.tabIndex = -1;
    const own = this.#cells(this.#current.item);
    const cell = own[Math.min(this.#current.cell, own.length - 1)] || this.body.querySelector("[data-cell]");
    if (!cell) return;
    cell.tabIndex = 0;
    if (focus) cell.focus({ preventScroll: true });
  }

  #go(item, cell) {
    const index = Math.min(Math.max(0, item), this.#items.length - 1), line = Math.floor(index / this.#columns);
    const top = line * this.height;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    const bottom = top + this.height - this.box.clientHeight;
    if (bottom > this.box.scrollTop) this.box.scrollTop = bottom;
    this.#current = { item: index, cell: 0 };
    this.#paint();
    const last = this.#cells(index).length - 1;
    this.#current.cell = cell < 0 ? Math.max(0, last) : Math.min(cell, Math.max(0, last));
    this.#mark(true);
  }

  #key(event) {
    const { item, cell } = this.#current, columns = this.#columns, page = Math.max(1, Math.floor(this.box.clientHeight / this.height));
    const last = this.#cells(item).length - 1;
    const moves = {
      ArrowRight: () => (cell < last ? this.#go(item, cell + 1) : item < this.#items.length - 1 && this.#go(item + 1, 0)),
      ArrowLeft: () => (cell > 0 ? this.#go(item, cell - 1) : item > 0 && this.#go(item - 1, -1)),
      ArrowDown: () => item + columns < this.#items.length && this.#go(item + columns, cell),
      ArrowUp: () => item - columns >= 0 && this.#go(item - columns, cell),
      PageDown: () => this.#go(item + page * columns, cell),
      PageUp: () => this.#go(item - page * columns, cell),
      Home: () => this.#go(0, 0),
      End: () => this.#go(this.#items.length - 1, 0),
      Enter: () => this.#open(event.target),
      " ": () => this.#open(event.target),
    };
    if (!Object.hasOwn(moves, event.key) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    moves[event.key]();
  }

  #open(target) {
    const row = target.closest("[data-index]");
    if (!row) return;
    const item = Number(row.dataset.index), cell = target.closest("[data-cell]");
    this.#current = { item, cell: cell ? Math.max(0, this.#cells(item).indexOf(cell)) : 0 };
    this.#mark(true);
    this.open(this.#items[item], this.#current.cell);
  }
}
