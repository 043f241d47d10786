package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// putsAtOnce is how many objects one transaction writes; etcd's own limit is 128.
const putsAtOnce = 100

// stored returns a pod as the API server stores it.
func stored(p *corev1.Pod) ([]byte, error) {
	codec := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), corev1.SchemeGroupVersion)
	return runtime.Encode(codec, p)
}

// txn is a transaction of etcd's JSON gateway: keys and values are in base64.
type txn struct {
	Success []operation `json:"success"`
}

type operation struct {
	Put pair `json:"requestPut"`
}

type pair struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// put writes values by their keys to etcd, in one transaction.
func (b *bench) put(ctx context.Context, values map[string][]byte) error {
	var t txn
	for key, value := range values {
		t.Success = append(t.Success, operation{pair{[]byte(key), value}})
	}
	body, err := json.Marshal(t)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, etcdURL+"/v3/kv/txn", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := b.etcd.Do(request)
	if err != nil {
		return fmt.Errorf("write to etcd: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("write to etcd: %s: %s", response.Status, text), err)
	}
	return nil
}

// etcdClient returns a client in the benchmark's namespace.
func (b *bench) etcdClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2, DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
		return b.host.Dial(network, address, dialLimit)
	}}}
}
