package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// extend serves both ways in which an API server asks a pod, over TLS on a port of every address: an
// admission webhook that rejects every object, and an aggregated API. Certificate and key are PEM.
// Each request needs a connection of its own, so that a policy decides each one.
func extend(port, certificate, key, message string) error {
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /admit", func(w http.ResponseWriter, r *http.Request) { reject(w, r, message) })
	// Lists of objects, whatever the path says; discovery has no resources.
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		answer(w, map[string]any{"kind": "List", "apiVersion": "v1", "items": []any{map[string]any{"kind": "Thing", "metadata": map[string]any{"name": message}}}})
	})
	onlyHTTP1 := new(http.Protocols)
	onlyHTTP1.SetHTTP1(true)
	s := &http.Server{
		Addr: ":" + port, Handler: mux, Protocols: onlyHTTP1, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	s.SetKeepAlivesEnabled(false)
	if err := s.ListenAndServeTLS("", ""); err != nil {
		return fmt.Errorf("serve extensions of the API server: %w", err)
	}
	return nil
}

// reject answers an AdmissionReview.
func reject(w http.ResponseWriter, r *http.Request, message string) {
	var review struct{ Request struct{ UID string } }
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, map[string]any{
		"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
		"response": map[string]any{"uid": review.Request.UID, "allowed": false, "status": map[string]any{"message": message}},
	})
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}
