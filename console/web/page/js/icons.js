import { html, svg } from "../vendor/lit-html/lit-html.js";

// A shape for each verdict and state, so that no meaning is in a colour alone.
const shapes = {
  allowed: svg`<path d="M3 8.5 6.5 12 13 4.5"/>`,
  renewed: svg`<path d="M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3"/>`,
  "would-deny": svg`<path d="M8 2.2 14.3 13H1.7zM8 6.5v3M8 11.3v.01"/>`,
  "would-allow": svg`<path d="M2 9.5c2-4 4-4 6-1.5s4 2.5 6-1.5"/>`,
  unmatched: svg`<circle cx="8" cy="8" r="5.8" stroke-dasharray="2.6 2"/>`,
  denied: svg`<path d="M3.5 3.5l9 9M12.5 3.5l-9 9"/>`,
  refused: svg`<circle cx="8" cy="8" r="5.8"/><path d="M4 12 12 4"/>`,
  blocked: svg`<path d="M8 1.8 13.5 4v4c0 3-2.3 5.2-5.5 6.3C4.8 13.2 2.5 11 2.5 8V4z"/>`,
  failed: svg`<path d="M9 1.5 3.8 9H8l-1 5.5L12.2 7H8z"/>`,
  well: svg`<path d="M3 8.5 6.5 12 13 4.5"/>`,
  connecting: svg`<circle cx="8" cy="8" r="5.8" stroke-dasharray="2.6 2"/>`,
  slow: svg`<circle cx="8" cy="8" r="5.8"/><path d="M8 4.8V8l2.3 1.5"/>`,
  unreachable: svg`<path d="M3.5 3.5l9 9M12.5 3.5l-9 9"/>`,
  problem: svg`<path d="M8 2.2 14.3 13H1.7zM8 6.5v3M8 11.3v.01"/>`,
  close: svg`<path d="M4 4l8 8M12 4l-8 8"/>`,
  open: svg`<path d="M6 3.5 10.5 8 6 12.5"/>`,
  unfolded: svg`<path d="M3.5 6 8 10.5 12.5 6"/>`,
  copy: svg`<path d="M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3"/>`,
  pause: svg`<path d="M5.5 3.5v9M10.5 3.5v9"/>`,
  play: svg`<path d="M5 3.2v9.6L12.8 8z"/>`,
  search: svg`<circle cx="7" cy="7" r="4.3"/><path d="M10.3 10.3 14 14"/>`,
  logo: svg`<path d="M3 14V5a2 2 0 0 1 2-2h6a2 2 0 0 1 2 2v9M8 14V8.5M8 6v.01"/>`,
};

// icon is a shape beside a word that says the same.
export const icon = (name) => html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">${shapes[name] ?? shapes.unmatched}</svg>`;

// known turns a word of an agent into one that a class of the style sheet may be made of.
const known = (word) => (word in shapes ? word : "other");

// badge is a verdict or a state: shape and word.
export const badge = (word, label = word) => html`<span class="badge is-${known(word)}">${icon(word)}<span>${label}</span></span>`;

// mark is the shape alone, with the word for screen readers and as a tooltip.
export const mark = (word) => html`<span class="mark is-${known(word)}" title=${word}>${icon(word)}<span class="unseen">${word}</span></span>`;
