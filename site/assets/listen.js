// Lets the picture follow the sound, and the sound follow the picture.
"use strict";

const audio = document.getElementById("audio");
const score = document.getElementById("score");
const playhead = document.getElementById("playhead");

function follow() {
  if (audio.duration > 0) {
    const at = (audio.currentTime / audio.duration) * score.clientWidth;
    playhead.style.transform = `translateX(${at}px)`;
  }
  if (!audio.paused && !audio.ended) requestAnimationFrame(follow);
}

function seek(event) {
  if (!(audio.duration > 0)) return;
  const frame = score.getBoundingClientRect();
  audio.currentTime = ((event.clientX - frame.left) / frame.width) * audio.duration;
  playhead.hidden = false;
  follow();
}

audio.addEventListener("play", () => {
  playhead.hidden = false;
  follow();
});
audio.addEventListener("seeked", follow);
score.addEventListener("click", seek);
document.documentElement.classList.add("scripted");
