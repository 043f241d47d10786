package console

import (
	"encoding/json"
	"io"
	"net/http"
)

// maxRefusal bounds the part of a refusal that is read.
const maxRefusal = 64 << 10

// Received tells an agent's answer from its refusal: it returns the answer whose
// status is 200, and else the *Refusal, with the body closed. Agents end with it.
func Received(resp *http.Response) (*http.Response, error) {
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	r := &Refusal{}
	if err != nil || json.Unmarshal(body, r) != nil || r.Message == "" {
		// Of another version, or no agent at all: the meaning of its status is unknown,
		// and it must not mean that there is no such pod.
		return nil, Refuse(http.StatusBadGateway, "the agent answered %s without a reason; is it of the same version as this command?", resp.Status)
	}
	r.Status = resp.StatusCode
	return nil, r
}
