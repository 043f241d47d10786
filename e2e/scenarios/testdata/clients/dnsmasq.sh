# Runs a program whose resolver is dnsmasq on 127.0.0.1, which asks another resolver.
#
#   sh dnsmasq.sh RESOLVER PROGRAM…
set -eu
resolver=$1
shift
dnsmasq --keep-in-foreground --conf-file=/dev/null --pid-file= --user=root --no-hosts --no-resolv \
	--listen-address=127.0.0.1 --bind-interfaces --server="$resolver" &
daemon=$!
trap 'kill $daemon; wait || true' EXIT
until grep -q ' 0100007F:0035 ' /proc/net/udp; do # 127.0.0.1:53
	kill -0 $daemon
	sleep 0.02
done
"$@"
