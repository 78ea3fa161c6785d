// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/provider/pod"
	"github.com/spokelet/spokelet/provider/pod/address"
)

const (
	// AnnotationPodAddresses of a ManagedCluster names the CIDRs that addresses of its
	// pods are taken over from, or "none". Without it all are that are not the hub's.
	AnnotationPodAddresses = "spokelet.io/pod-addresses"

	// ConditionSplitConsented is the condition of a ManagedCluster that says whether its
	// record consents to the label that its agent asks to be split by. A cluster that
	// never was refused has none.
	ConditionSplitConsented = "SpokeletSplitConsented"

	// ReasonSplitNotConsented: the agent asks for a label that the record does not name.
	ReasonSplitNotConsented = "SplitLabelNotConsented"

	// ReasonSplitConsented: the record names the label that the agent asks for.
	ReasonSplitConsented = "SplitLabelConsented"

	// ReasonNotSplit: the agent asks for no label any more.
	ReasonNotSplit = "NotSplit"

	// ConditionPodAddressesValid is the condition of a ManagedCluster that says whether
	// its AnnotationPodAddresses can be read. One that always could has none.
	ConditionPodAddressesValid = "SpokeletPodAddressesValid"

	// ReasonPodAddressesInvalid: the annotation cannot be read, and no address is taken.
	ReasonPodAddressesInvalid = "InvalidAnnotation"

	// ReasonPodAddressesValid: the annotation can be read, or is not there.
	ReasonPodAddressesValid = "Valid"
)

// parseConsent reads what a record allows of what its agent says. With an error no address
// of a pod is allowed.
func parseConsent(record *clusterv1.ManagedCluster) (pod.Consent, error) {
	c := pod.Consent{SplitLabel: record.Annotations[wire.AnnotationSplitLabel]}
	text, ok := record.Annotations[AnnotationPodAddresses]
	if !ok {
		return c, nil
	}
	var err error
	if c.Addresses, err = address.ParseLimit(text); err != nil {
		return c, fmt.Errorf("annotation %s: %w", AnnotationPodAddresses, err)
	}
	return c, nil
}

// recordCondition is a condition of a record. Each has a field owner of its own: who applies
// one condition takes away the others that it owns.
type recordCondition struct {
	fieldOwner, action string
	condition          metav1.Condition
}

// updateConditions says on the record what keeps the cluster from its nodes, or its agent from
// what it asks for, and takes that back when it is over.
func (r *recordReconciler) updateConditions(ctx context.Context, record *clusterv1.ManagedCluster, addresses error) error {
	return errors.Join(
		r.setCondition(ctx, record, r.registrationCondition(record.Name)),
		r.setCondition(ctx, record, splitCondition(record, r.provider.requestedSplit(record.Name))),
		r.setCondition(ctx, record, podAddressesCondition(addresses)),
		r.setCondition(ctx, record, systemLabelsCondition(r.provider.clusterSystemLabels(record.Name))),
	)
}

// splitCondition compares the label that an agent asks for with the one that the record names.
// Until the agent has sent a summary, the condition stays as it is.
func splitCondition(record *clusterv1.ManagedCluster, asked splitRequest) recordCondition {
	s := recordCondition{fieldOwner: fieldOwner + "-split", action: "SplitCluster", condition: metav1.Condition{Type: ConditionSplitConsented}}
	c, consent := &s.condition, record.Annotations[wire.AnnotationSplitLabel]
	switch {
	case !asked.known:
	case asked.label == "":
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonNotSplit, "the agent asks for no groups of nodes"
	case asked.label == consent:
		c.Status, c.Reason = metav1.ConditionTrue, ReasonSplitConsented
		c.Message = fmt.Sprintf("the cluster is shown in groups of its nodes by the label %q", asked.label)
	default:
		c.Status, c.Reason = metav1.ConditionFalse, ReasonSplitNotConsented
		c.Message = fmt.Sprintf("the agent asks to show its nodes in groups by the label %q (node.splitLabel), and the cluster is shown as one node; to consent, annotate the ManagedCluster with %s=%s",
			asked.label, wire.AnnotationSplitLabel, asked.label)
	}
	return s
}

func podAddressesCondition(err error) recordCondition {
	s := recordCondition{fieldOwner: fieldOwner + "-addresses", action: "ReadAnnotation", condition: metav1.Condition{
		Type: ConditionPodAddressesValid, Status: metav1.ConditionTrue, Reason: ReasonPodAddressesValid,
		Message: "the annotation can be read, or is not there",
	}}
	if err != nil {
		s.condition.Status, s.condition.Reason = metav1.ConditionFalse, ReasonPodAddressesInvalid
		s.condition.Message = "no address of a pod is taken over: " + err.Error()
	}
	return s
}

// setCondition writes a condition that the record does not have yet, with an event. That
// condition is True is written only where it was not.
func (r *recordReconciler) setCondition(ctx context.Context, record *clusterv1.ManagedCluster, s recordCondition) error {
	want := s.condition
	have := meta.FindStatusCondition(record.Status.Conditions, want.Type)
	switch {
	case want.Status == "", have == nil && want.Status == metav1.ConditionTrue:
		return nil
	case have != nil && have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message:
		return nil
	}
	want.ObservedGeneration = record.Generation
	if err := r.applyCondition(ctx, record, s.fieldOwner, want); err != nil {
		return err
	}
	kind := corev1.EventTypeNormal
	if want.Status == metav1.ConditionFalse {
		kind = corev1.EventTypeWarning
	}
	r.events.Eventf(record, nil, kind, want.Reason, s.action, "%s", want.Message)
	return nil
}

// splitRequest is the label that an agent asks to be split by, empty for none.
type splitRequest struct {
	label string
	// known: the agent has said what its nodes are.
	known bool
}

func (n *virtualNode) requestedSplit() splitRequest {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch s := n.state.summary; {
	case s == nil:
		return splitRequest{}
	case s.Split == nil:
		return splitRequest{known: true}
	default:
		return splitRequest{label: s.Split.Label, known: true}
	}
}

func (p *Provider) requestedSplit(cluster string) splitRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	if base, ok := p.nodes[cluster]; ok {
		return base.requestedSplit()
	}
	return splitRequest{}
}

// SplitLabel returns the label by which a cluster may be shown in groups of its nodes,
// empty for none.
func (p *Provider) SplitLabel(cluster string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	base, ok := p.nodes[cluster]
	if !ok {
		return ""
	}
	base.mu.Lock()
	defer base.mu.Unlock()
	return base.state.cluster.Consent.SplitLabel
}

// requeueRecordPaced has a cluster's record looked at again at the wish of its agent: at
// once, unless there were many. p.mu is held.
func (p *Provider) requeueRecordPaced(cluster string) {
	if p.enqueueAfter == nil {
		return // every record is looked at when the controller starts
	}
	wait := p.requeuePacer.Delay(cluster)
	if wait == 0 {
		p.requeuePacer.Spend(cluster, 0)
	}
	p.enqueueAfter(cluster, wait)
}
