// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RequestState is a request of a director, and where the worker has got to with it.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type RequestState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RequestStateSpec   `json:"spec"`
	Status RequestStateStatus `json:"status,omitempty"`
}

// RequestStateSpec holds the job that is requested, and its state. Director and
// worker both write it, in turns.
type RequestStateSpec struct {
	// RequestUID identifies the request. It equals the name of an object that a
	// director made.
	RequestUID string `json:"request-uid"`
	Job        string `json:"job"`
	State      string `json:"state"`
}

// RequestStateStatus holds what has been.
type RequestStateStatus struct {
	// History has an entry for each state of each job, in the order in which they
	// were entered.
	History []HistoryEntry `json:"history,omitempty"`
}

// HistoryEntry says when a job entered a state.
type HistoryEntry struct {
	Job   string `json:"job"`
	State string `json:"state"`
	// Timestamp is in the format of RFC 3339, in UTC.
	Timestamp string `json:"timestamp"`
}

// RequestStateList is a list of requests.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type RequestStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RequestState `json:"items"`
}
