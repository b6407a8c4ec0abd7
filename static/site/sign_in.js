// A person who opened the link wants to be signed in: press the button for them. Previews of links run no scripts, so they
// still do not use the link up; without scripts the button is there.
const form = document.getElementById("sign-in");
if (form && !document.prerendering) form.requestSubmit();
