// Command pooled requests each URL of its input with one http.Client, which keeps connections.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	client := &http.Client{Timeout: time.Minute}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		body, err := get(client, in.Text())
		if err != nil {
			fmt.Println("failed", err)
			continue
		}
		fmt.Println("ok", body)
	}
}

func get(client *http.Client, url string) (string, error) {
	r, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return string(body), err
}
