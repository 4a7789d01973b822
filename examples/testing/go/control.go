package shop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Control is the control plane of `anabranch up --control`: each call is one request over HTTP.
type Control struct{ URL string }

// Ask sends one request, and reads what its JSON says into `answer`, unless that is nil.
func (c Control) Ask(method, path string, body, answer any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, c.URL+path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	told, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, told)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(told, answer)
}

// Rule is a rule of faults: see docs/faults.md for its fields.
type Rule map[string]any

// Rule adds a rule, and returns its name.
func (c Control) Rule(rule Rule) (name string, err error) {
	var told struct{ Name string }
	err = c.Ask("POST", "/v1/faults", rule, &told)
	return told.Name, err
}

// Hits says how often a rule has hit.
func (c Control) Hits(name string) (int, error) {
	var told struct{ Hits int }
	err := c.Ask("GET", "/v1/faults/"+name, struct{}{}, &told)
	return told.Hits, err
}

// WaitHit waits until a rule has hit.
func (c Control) WaitHit(name string) error {
	return c.Ask("GET", "/v1/faults/"+name+"/wait", struct{}{}, nil)
}

// Release lets go what a rule holds.
func (c Control) Release(name string) error {
	return c.Ask("POST", "/v1/faults/"+name+"/release", struct{}{}, nil)
}

// Wait waits until a condition holds, such as "topic", "orders", "isr", "3+".
func (c Control) Wait(words ...string) error {
	query := url.Values{}
	for at := 0; at < len(words); at += 2 {
		query.Set(words[at], words[at+1])
	}
	return c.Ask("GET", "/v1/wait?"+query.Encode(), struct{}{}, nil)
}

// Reason says why this cluster cannot serve a request, such as "POST /v1/clock"; it is empty if the cluster can.
func (c Control) Reason(request string) (string, error) {
	var told struct {
		Requests []struct{ Name, Reason string }
	}
	err := c.Ask("GET", "/v1/capabilities", struct{}{}, &told)
	for _, one := range told.Requests {
		if one.Name == request {
			return one.Reason, err
		}
	}
	return "", err
}

// Advance moves the cluster's time on: "45s".
func (c Control) Advance(span string) error {
	return c.Ask("POST", "/v1/clock", map[string]string{"advance": span}, nil)
}

// Node does something to a node: kill, stop, start.
func (c Control) Node(node int, what string) error {
	return c.Ask("POST", fmt.Sprintf("/v1/nodes/%d/%s", node, what), struct{}{}, nil)
}

// State is what the cluster is like now, as far as the tests look at it.
type State struct {
	Nodes []struct {
		Node, Port int
		Host       string
		Controller bool
	}
	Topics []struct {
		Topic      string
		Partitions []struct{ Partition, Leader int }
	}
	Groups       []struct{ Members []string }
	Transactions []struct{ State string }
}

// State asks for it.
func (c Control) State() (state State, err error) {
	err = c.Ask("GET", "/v1/state", struct{}{}, &state)
	return state, err
}
