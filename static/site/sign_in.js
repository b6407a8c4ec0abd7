// Press the button for the user who opened the link. Link previews run no scripts, so they do not use the one-time link; without
// scripts the user presses the button.
const form = document.getElementById("sign-in");
if (form && !document.prerendering) form.requestSubmit();
