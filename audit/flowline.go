package audit

import (
	"strconv"

	"github.com/namegate/namegate/policy"
)

// appendFlow appends the flow as one line of JSON with its newline. The node is a
// nodeField.
func appendFlow(b []byte, node string, f *Flow) []byte {
	b = appendHead(b, flowHead, node, f.Time)
	b = appendWord(b, "verdict", f.Verdict.String())
	b = appendWord(b, "direction", f.Direction())
	b = appendSubject(b, f.Pod, f.Workload, f.Owner)
	b = f.Address.AppendTo(b)
	b = append(b, `"}`...)
	b = appendWord(b, "protocol", protocolWord(f.Protocol))
	if f.Source.IsValid() {
		b = append(b, `,"source":{"address":"`...)
		b = f.Source.AppendTo(b)
		b = append(b, '"')
		if f.SourcePod.Name != "" {
			b = appendField(b, "pod", f.SourcePod.String())
		}
		b = append(b, '}')
	}
	b = append(b, `,"destination":{"address":"`...)
	b = f.Dialled.Addr().AppendTo(b)
	b = append(b, '"')
	if port := f.Dialled.Port(); port != 0 {
		b = append(b, `,"port":`...)
		b = strconv.AppendUint(b, uint64(port), 10)
	}
	b = append(b, '}')
	b = appendList(b, "names", f.Names, never, appendFlowName)
	b = appendWord(b, "reason", string(f.Reason))
	if f.ServerName != "" {
		b = appendField(b, "server_name", f.ServerName)
	}
	b = appendRule(b, f.Rule)
	if f.Rule != nil && f.Pod.Namespace == "" {
		b = appendWord(b, "traffic", f.Rule.Traffic.String())
	}
	b = appendList(b, "policies", f.Policies[:min(len(f.Policies), maxListed)], never, func(b []byte, p *string) []byte { return appendString(b, *p) })
	b = append(b, `,"count":`...)
	b = strconv.AppendUint(b, f.Count, 10)
	if f.Count > 1 {
		b = append(b, `,"last":"`...)
		b = appendTime(b, f.Last)
		b = append(b, '"')
	}
	return append(b, "}\n"...)
}

func appendFlowName(b []byte, n *FlowName) []byte {
	b = append(b, `{"name":`...)
	b = appendName(b, n.Name)
	if !n.Asked.IsZero() {
		b = append(b, `,"asked":"`...)
		b = appendTime(b, n.Asked)
		b = append(b, '"')
	}
	if n.Pod.Name != "" {
		b = appendField(b, "pod", n.Pod.String())
	}
	if n.Match != nil {
		b = append(b, `,"match":`...)
		b = appendMatch(b, n.Match)
	}
	return append(b, '}')
}

// protocolWord is the protocol in a line: the keyword of IANA's list for the protocols
// that pods use, else the number.
func protocolWord(p policy.Protocol) string {
	switch p {
	case policy.TCP, policy.UDP, policy.SCTP:
		return p.String()
	case protocolICMP:
		return "icmp"
	case protocolICMP6:
		return "ipv6-icmp"
	}
	return strconv.Itoa(int(p))
}

// The protocols that no rule names, of
// https://www.iana.org/assignments/protocol-numbers.
const (
	protocolICMP  policy.Protocol = 1
	protocolICMP6 policy.Protocol = 58
)
