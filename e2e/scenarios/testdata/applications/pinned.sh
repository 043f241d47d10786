# Requests each URL of its input with curl, always at the address that the name had first.
while read -r url; do
	name=${url#http://}
	name=${name%%:*}
	eval "addr=\${pin_${name%%.*}-}"
	if [ -z "$addr" ]; then
		addr=$(getent ahostsv4 "$name" | sed -n 's/ .*//p;q')
		eval "pin_${name%%.*}=\$addr"
	fi
	body=$(curl -sS --max-time 60 --resolve "$name:8000:$addr" "$url" 2>&1) && echo "ok $body" || echo "failed $body"
done
