package main

import (
	"fmt"
	"strings"
)

// services is how many Services the node kube-proxy has, each with one endpoint.
const services = 1000

// layServices writes rules as kube-proxy's iptables mode does, for Services that the client
// does not connect to: each new connection asks all of them.
func (n *node) layServices() error { return n.Node.Pipe(serviceRules(), "iptables-restore") }

func serviceRules() string {
	var chains, rules, each strings.Builder
	for i := range services {
		address := fmt.Sprintf("198.19.%d.%d", i/250, 1+i%250)
		endpoint := fmt.Sprintf("198.18.%d.%d", i/250, 1+i%250)
		fmt.Fprintf(&chains, ":KUBE-SVC-%[1]d - [0:0]\n:KUBE-SEP-%[1]d - [0:0]\n", i)
		fmt.Fprintf(&rules, "-A KUBE-SERVICES -d %s/32 -p tcp -m tcp --dport 443 -j KUBE-SVC-%d\n", address, i)
		fmt.Fprintf(&each, "-A KUBE-SVC-%[1]d ! -s 10.1.0.0/24 -d %[2]s/32 -p tcp -m tcp --dport 443 -j KUBE-MARK-MASQ\n", i, address)
		fmt.Fprintf(&each, "-A KUBE-SVC-%[1]d -j KUBE-SEP-%[1]d\n", i)
		fmt.Fprintf(&each, "-A KUBE-SEP-%[1]d -s %[2]s/32 -j KUBE-MARK-MASQ\n-A KUBE-SEP-%[1]d -p tcp -m tcp -j DNAT --to-destination %[2]s:8443\n", i, endpoint)
	}
	return `*nat
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
` + chains.String() + `-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE
` + rules.String() + `-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
` + each.String() + `COMMIT
*filter
:KUBE-EXTERNAL-SERVICES - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
:KUBE-SERVICES - [0:0]
-A INPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A INPUT -j KUBE-NODEPORTS
-A INPUT -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES
-A INPUT -j KUBE-FIREWALL
-A FORWARD -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A FORWARD -j KUBE-FORWARD
-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES
-A FORWARD -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL
-A OUTPUT -m conntrack --ctstate NEW -j KUBE-SERVICES
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
`
}
