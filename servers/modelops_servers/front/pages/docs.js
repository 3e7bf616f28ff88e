"use strict";

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function block(title, content) {
  const body = content?.["application/json"]?.example;
  if (!body) return [];
  return [element("h3", title), element("pre", JSON.stringify(body, null, 2))];
}

function route(method, path, operation) {
  const card = element("details", "", "card");
  const head = element("summary");
  head.append(
    element("span", method.toUpperCase() + " ", "method"),
    element("code", path),
    element("span", `  ${operation.summary ?? ""}`, "soft"),
  );
  card.append(head);
  if (operation.description) card.append(element("p", operation.description));
  card.append(...block("Request", operation.requestBody?.content));
  card.append(...block("Answer", operation.responses?.["200"]?.content));
  const answers = element("dl");
  for (const [status, answer] of Object.entries(operation.responses ?? {})) {
    answers.append(element("dt", status), element("dd", answer.description));
  }
  card.append(answers);
  return card;
}

async function load() {
  const target = document.getElementById("routes");
  const reply = await fetch("/openapi.json");
  const groups = new Map();
  for (const [path, methods] of Object.entries((await reply.json()).paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? "other";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(route(method, path, operation));
    }
  }
  for (const tag of [...groups.keys()].sort()) {
    target.append(element("h2", tag), ...groups.get(tag));
  }
}

load();
