// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package spoke

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spokelet/spokelet/e2e/env"
)

// answer is a line of a process: how an order went.
type answer struct {
	Text  string `json:"text"`
	Error string `json:"error,omitempty"`
}

// ready is the text of a process's first answer: the cluster is connected.
const ready = "ready"

var errNotReady = errors.New("hostile spoke did not get ready")

// Process is a hostile spoke that runs. Its caller closes it.
type Process struct{ *env.Child }

// Start starts a binary whose main is Serve, hands the invitation over, and waits until
// it is connected.
func Start(ctx context.Context, binary, invitation string) (*Process, error) {
	child, err := env.Command{Path: "nice", Args: []string{"-n", "19", binary}}.StartChild(ctx)
	if err != nil {
		return nil, err
	}
	p := &Process{child}
	text, err := p.request(invitation)
	if err == nil && text != ready {
		err = fmt.Errorf("%w: it answered %q", errNotReady, text)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Do has the spoke carry out an order and returns how it went. One order is carried
// out at a time. An error is that the attack did not take place.
func (p *Process) Do(o Order) (string, error) {
	line, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("hostile spoke: %w", err)
	}
	return p.request(string(line))
}

// request writes a line to the process and reads its answer.
func (p *Process) request(written string) (string, error) {
	line, err := p.Request(written)
	if err != nil {
		return "", err
	}
	var a answer
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		return "", fmt.Errorf("hostile spoke: %w", err)
	}
	if a.Error != "" {
		return a.Text, fmt.Errorf("hostile spoke: %s", a.Error) //nolint:err113 // it comes from another process
	}
	return a.Text, nil
}

// Serve is such a process: it reads an invitation, joins, and carries out orders, one a
// line, until its input ends. It answers each line with one.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	if !lines.Scan() {
		return errors.Join(io.ErrUnexpectedEOF, lines.Err())
	}
	s, err := join(ctx, lines.Bytes())
	if err != nil {
		return err
	}
	defer s.close()
	replies := json.NewEncoder(out)
	if err := replies.Encode(answer{Text: ready}); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	for lines.Scan() {
		var o Order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("order: %w", err)
		}
		var a answer
		if a.Text, err = s.carryOut(ctx, o); err != nil {
			a.Error = err.Error()
		}
		if err := replies.Encode(a); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return lines.Err()
}
