/* Shows below the field, in words, when the selected crontab runs. */
"use strict";
{
  const crontab = document.getElementById("id_crontab");
  const field = document.querySelector(".field-crontab");
  const readable = JSON.parse(document.getElementById("readable-crontabs").textContent);
  const row = document.querySelector(".field-crontab_translation");
  if (row) row.remove();
  if (crontab && field) {
    const help = field.querySelector(".help") || field.appendChild(document.createElement("div"));
    const shown = help.appendChild(document.createElement("p"));
    const update = () => { shown.textContent = readable[crontab.value] || ""; };
    crontab.addEventListener("change", update);
    update();
  }
}
