# Runs a program whose resolver is systemd-resolved, which asks the resolver of
# /etc/resolv.conf. It needs a mount and a network namespace of its own.
#
#   sh resolved.sh ROOT PROGRAM…    ROOT: where systemd-resolved is unpacked
set -eu
root=$1
shift

mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/resolved.conf.d
own() {
	"$@" >/run/new
	cp /run/new "/run/$name"
	mount --bind "/run/$name" "/etc/$name"
}
name=passwd && own sh -c 'echo systemd-resolve:x:65533:65533::/:/usr/sbin/nologin; cat /etc/passwd'
name=group && own sh -c 'echo systemd-resolve:x:65533:; cat /etc/group'
{
	echo '[Resolve]'
	echo 'Domains=~. ~cluster.local' # else .local is multicast DNS's
	sed -n 's/^nameserver /DNS=/p' /etc/resolv.conf
} >/run/systemd/resolved.conf.d/test.conf
name=resolv.conf && own sed 's/^nameserver .*/nameserver 127.0.0.53/' /etc/resolv.conf

file() { find "$root" -type f -path "*/lib/$1"; }
LD_LIBRARY_PATH=$(dirname "$(file '*/libsystemd-shared-*')") "$(file systemd/systemd-resolved)" &
daemon=$!
trap 'kill $daemon; wait || true' EXIT
until grep -q ' 3500007F:0035 ' /proc/net/udp; do # 127.0.0.53:53
	kill -0 $daemon
	sleep 0.02
done
"$@" || {
	echo "$1 ended with $?"
	exit 1
}
