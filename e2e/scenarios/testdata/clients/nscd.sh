# Runs a program whose lookups go through nscd, which asks the resolver of /etc/resolv.conf. It
# needs a mount namespace of its own.
#
#   sh nscd.sh ROOT PROGRAM…    ROOT: where nscd is unpacked
set -eu
root=$1
shift

mount -t tmpfs tmpfs /run
mkdir -p /run/nscd
cat >/run/nscd.conf <<'CONF'
server-user root
enable-cache hosts yes
positive-time-to-live hosts 60
negative-time-to-live hosts 1
check-files hosts no
persistent hosts no
shared hosts no
CONF
nscd=$root/usr/sbin/nscd
"$nscd" -F -f /run/nscd.conf &
daemon=$!
trap 'kill $daemon; wait || true' EXIT
until [ -S /run/nscd/socket ]; do
	kill -0 $daemon
	sleep 0.02
done
"$@"
# The program has asked the daemon.
"$nscd" -f /run/nscd.conf -g | grep -A 30 '^hosts cache' | grep -q '^ *[1-9][0-9]*  current number of cached values'
