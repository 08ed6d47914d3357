// Keys go to the terminal as soon as there is one to take them, and whenever its tab is looked at.
const focus = () => {
  const connected = document.querySelector(".textual-terminal.-connected");
  if (connected) connected.querySelector(".xterm-helper-textarea").focus();
  else setTimeout(focus, 50);
};
window.addEventListener("load", focus);
window.addEventListener("focus", focus);
