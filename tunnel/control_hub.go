// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/api/rpc/v1/rpcv1connect"
	"github.com/spokelet/spokelet/tunnel/control"
)

// hubControl is the hub's end of the control stream of one session.
type hubControl struct {
	stream *connect.BidiStreamForClient[rpcv1.ControlRequest, rpcv1.ControlResponse]

	mu      sync.Mutex // held while a frame is made and sent, for their order
	machine *control.Hub
}

// openControl opens the control stream and sends the hello.
func openControl(ctx context.Context, rt http.RoundTripper, local control.Local) (*hubControl, error) {
	client := rpcv1connect.NewControlServiceClient(&http.Client{Transport: rt}, "http://"+DoorControl,
		connect.WithReadMaxBytes(control.MaxFrameBytes),
		// Frames are small; a peer that cannot compress cannot send bombs.
		connect.WithAcceptCompression("gzip", nil, nil),
	)
	machine, hello := control.NewHub(local)
	d := &hubControl{stream: client.Control(ctx), machine: machine}
	// io.EOF means that the agent has ended the call; the first receive returns
	// the reason.
	if err := d.stream.Send(hello); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("hello: %w", err)
	}
	return d, nil
}

// receiveEvent waits for the agent's next frame. The error is io.EOF when the agent
// ended the stream in order.
func (d *hubControl) receiveEvent() (control.Event, error) {
	frame, err := d.stream.Receive()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.machine.Receive(frame)
}

// waitForHello waits for the agent's hello.
func (d *hubControl) waitForHello() (control.Agreement, error) {
	event, err := d.receiveEvent()
	if err != nil {
		return control.Agreement{}, fmt.Errorf("hello: %w", err)
	}
	agreed, ok := event.(control.Agreed)
	if !ok {
		return control.Agreement{}, fmt.Errorf("hello: %w", control.ErrOrder)
	}
	return agreed.Agreement, nil
}

// sendCertificate sends the outcome of a renewal.
func (d *hubControl) sendCertificate(chain, bundle []byte, failure error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var frame *rpcv1.ControlRequest
	var err error
	if failure == nil {
		frame, err = d.machine.Issue(chain, bundle)
	} else {
		frame, err = d.machine.Refuse(failure.Error())
	}
	if err != nil {
		return err
	}
	return d.stream.Send(frame)
}

// sendTrustBundle sends the authorities to trust.
func (d *hubControl) sendTrustBundle(bundle []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	frame, err := d.machine.Trust(bundle)
	if err != nil {
		return err
	}
	return d.stream.Send(frame)
}

// sendDrain announces, once, that the hub shuts down.
func (d *hubControl) sendDrain(reason string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	frame := d.machine.Drain(reason)
	if frame == nil {
		return nil
	}
	return d.stream.Send(frame)
}

// close ends the stream in order.
func (d *hubControl) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.stream.CloseRequest()
}
