// Command golang prints the addresses of a name as Go's own resolver tells them.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
)

func main() {
	r := net.Resolver{PreferGo: true}
	addrs, err := r.LookupHost(context.Background(), os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for _, a := range addrs {
		fmt.Println(a)
	}
}
