// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"errors"
	"fmt"

	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// errPacket says that a peer sent what its role does not send, or a packet
// whose payload is not that of its type.
var errPacket = errors.New("packet out of place")

// checkFromAgent returns an error for a packet that no agent sends. The proxy
// server takes the payload from the type and would panic on one that is absent.
func checkFromAgent(p *client.Packet) error {
	var present bool
	switch p.GetType() {
	case client.PacketType_DIAL_RSP:
		present = p.GetDialResponse() != nil
	case client.PacketType_DIAL_CLS:
		present = p.GetCloseDial() != nil
	case client.PacketType_DATA:
		present = p.GetData() != nil
	case client.PacketType_CLOSE_RSP:
		present = p.GetCloseResponse() != nil
	case client.PacketType_DRAIN:
		present = true
	default: // What servers send, and the unknown.
	}
	if !present {
		return fmt.Errorf("%w: %v from an agent", errPacket, p.GetType())
	}
	return nil
}

// checkFromServer returns an error for a packet that no proxy server sends.
func checkFromServer(p *client.Packet) error {
	var present bool
	switch p.GetType() {
	case client.PacketType_DIAL_REQ:
		present = p.GetDialRequest() != nil
	case client.PacketType_DIAL_CLS:
		present = p.GetCloseDial() != nil
	case client.PacketType_DATA:
		present = p.GetData() != nil
	case client.PacketType_CLOSE_REQ:
		present = p.GetCloseRequest() != nil
	default: // What agents send, and the unknown.
	}
	if !present {
		return fmt.Errorf("%w: %v from a server", errPacket, p.GetType())
	}
	return nil
}

func dialRequest(random int64) *client.Packet {
	return &client.Packet{
		Type: client.PacketType_DIAL_REQ,
		// The agent does not look at the target; this one says so in logs.
		Payload: &client.Packet_DialRequest{DialRequest: &client.DialRequest{
			Protocol: "unix", Address: "session", Random: random,
		}},
	}
}

func dialResponse(random, connectID int64, message string) *client.Packet {
	return &client.Packet{
		Type: client.PacketType_DIAL_RSP,
		Payload: &client.Packet_DialResponse{DialResponse: &client.DialResponse{
			Random: random, ConnectID: connectID, Error: message,
		}},
	}
}

func closeResponse(connectID int64, message string) *client.Packet {
	return &client.Packet{
		Type: client.PacketType_CLOSE_RSP,
		Payload: &client.Packet_CloseResponse{CloseResponse: &client.CloseResponse{
			ConnectID: connectID, Error: message,
		}},
	}
}

func data(connectID int64, p []byte) *client.Packet {
	return &client.Packet{
		Type:    client.PacketType_DATA,
		Payload: &client.Packet_Data{Data: &client.Data{ConnectID: connectID, Data: p}},
	}
}

func closeRequest(connectID int64) *client.Packet {
	return &client.Packet{
		Type:    client.PacketType_CLOSE_REQ,
		Payload: &client.Packet_CloseRequest{CloseRequest: &client.CloseRequest{ConnectID: connectID}},
	}
}
