// Elements: made by hand, so that no text ever becomes markup; and what every part of the page does with them.

const SVG = "http://www.w3.org/2000/svg";
const SEEN_MS = 6000; // for a short sentence. Chosen.
const SLICE_MS = 8; // of work before the page may paint again: half a frame

/** An element. Properties: `class`, `text`, `on` ({event: listener}), booleans, and attributes by their names. */
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for SVG. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on")
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A button that does something in this page. */
export function button(text, click, properties = {}) {
  return el("button", { type: "button", text, on: { click }, ...properties });
}

/** A copy of a `<template>`'s content. */
export function copyOf(id) {
  return document.getElementById(id).content.cloneNode(true);
}

/** Says it to screen readers; to others too where they see it nowhere else, for a while, at the foot of the window. */
export function announce(text, { isSeen = false } = {}) {
  const status = document.getElementById("status");
  status.textContent = text;
  status.classList.toggle("seen", isSeen);
  clearTimeout(hiding);
  if (isSeen) hiding = setTimeout(() => status.classList.remove("seen"), SEEN_MS);
}

let hiding;

/**
 * Does something with every item, in slices between which the page paints. Ends early when `isWanted` says no.
 * @returns {Promise<boolean>} whether all of it was done
 */
export async function inSlices(items, work, isWanted = () => true) {
  let end = performance.now() + SLICE_MS;
  for (let place = 0; place < items.length; place += 1) {
    if (performance.now() > end) {
      await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
      if (!isWanted()) return false;
      end = performance.now() + SLICE_MS;
    }
    work(items[place], place);
  }
  return true;
}

/** A bar from 0 to 100, whose number stands beside it in words; hatched where it is low. */
export function bar(percentile, { threshold = null, isLow = false } = {}) {
  const filled = el("span", { class: isLow ? "filled low" : "filled" });
  filled.style.width = `${Math.max(1, Math.min(100, percentile ?? 0))}%`;
  const track = el("span", { class: "bar", "aria-hidden": "true" }, filled);
  if (threshold !== null) {
    const tick = el("span", { class: "tick" });
    tick.style.left = `${threshold}%`;
    track.append(tick);
  }
  return track;
}

/** The label as a shape and a word, never a colour alone; nothing where there is no label. */
export function badge(label) {
  if (!label) return null;
  return el(
    "span",
    { class: `badge ${label}` },
    el("span", { class: "shape", "aria-hidden": "true", text: { low: "▼", good: "▲" }[label] ?? "●" }),
    ` ${label}`,
  );
}

/** Gives the reader a file, made here. */
export function download(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
