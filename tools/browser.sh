#!/usr/bin/env bash
# Is there a browser for the tests of the live map? If not, install the distribution's, where that may be done.
# Never fails: without one, those tests are skipped and say so.
set -u
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null && exit 0
done

if [ "$(id -u)" = 0 ]; then as=""
elif sudo -n true 2>/dev/null; then as="sudo -n"
else exit 0
fi

echo "installing Chromium for the tests of the live map"
if command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    $as apt-get update -qq
    $as apt-get install -qq -y --no-install-recommends chromium
elif command -v dnf >/dev/null; then
    $as dnf install -q -y chromium
elif command -v apk >/dev/null; then
    $as apk add -q chromium
fi >/dev/null 2>&1 || echo "there is none to be had; tests of the live map will be skipped"
exit 0
