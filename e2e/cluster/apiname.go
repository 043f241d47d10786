package cluster

import (
	"bytes"
	"net/netip"
)

// APIServerAddrs are addresses of the API server: it has the first, and the second after
// AddAPIServerAddr. It serves its port on every address.
var APIServerAddrs = [2]netip.Addr{controlSite.addr4, netip.MustParseAddr("10.77.0.13")}

// APIServerAt returns ADDRESS:PORT of the API server at one of APIServerAddrs.
func APIServerAt(i int) string {
	return netip.AddrPortFrom(APIServerAddrs[i], apiServer.Port()).String()
}

// AddAPIServerAddr gives the host of the API server its second address.
func (c *Cluster) AddAPIServerAddr() error {
	return c.control.ip("addr add " + APIServerAddrs[1].String() + "/24 dev eth0")
}

// RemoveAPIServerAddr takes the second address from the host of the API server.
func (c *Cluster) RemoveAPIServerAddr() error {
	return c.control.ip("addr del " + APIServerAddrs[1].String() + "/24 dev eth0")
}

// byName makes a kubeconfig one that reaches the API server by a name. The certificate of the API
// server is for other names.
func byName(config []byte, name string) []byte {
	address := []byte(`"https://` + apiServer.String() + `"`)
	return bytes.Replace(config, address, []byte(`"https://`+name+`:6443", tls-server-name: kubernetes`), 1)
}
