# Fetches PostgreSQL with apt into the directory $1. It needs no privileges and installs nothing in the system.
set -eu
umask 022
dir=$1
command -v apt-get >/dev/null || { echo "only Debian and Ubuntu have apt-get, which fetches PostgreSQL"; exit 1; }
exec 9>"$dir.lock"
flock 9
! "$dir/bin/postgres" --version 2>/dev/null || exit 0 # another process was faster
rm -rf "$dir"
mkdir -p "$dir/lists/partial" "$dir/archives/partial" "$dir/bin.new"
apt() { apt-get -q -o Dir::State::Lists="$dir/lists" -o Dir::Cache="$dir" -o Debug::NoLocking=1 "$@"; }
apt update || true # a failed source may not matter
apt install --download-only --yes --no-install-recommends postgresql
for package in "$dir"/archives/*.deb; do dpkg -x "$package" "$dir/root"; done
libraries=
for folder in "$dir"/root/usr/lib/*-linux-* "$dir"/root/lib/*-linux-*; do libraries=$libraries:$folder; done
for program in "$dir"/root/usr/lib/postgresql/*/bin/*; do
  wrapper=$dir/bin.new/${program##*/}
  printf '#!/bin/sh\nexport LD_LIBRARY_PATH="%s"\nexec "%s" "$@"\n' "${libraries#:}" "$program" >"$wrapper"
  chmod 755 "$wrapper"
done
rm -rf "$dir/lists" "$dir/archives" "$dir"/*.bin
mv "$dir/bin.new" "$dir/bin" # last: without bin the fetch is incomplete
