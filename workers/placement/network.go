// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/spokelet/spokelet/workers/script"
)

const (
	portDNS = 53
	// servicePort and servicePortName are those of every Service.
	servicePort     = 80
	servicePortName = "http"
)

// Addresses that are nobody's on the internet, or that clouds answer for themselves. workerd
// refuses private ones too; here it is the cluster that does, if it enforces policies.
var (
	nonPublicIPv4 = []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8",
		"168.63.129.16/32", // Azure's, for its machines
		"169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.168.0.0/16",
		"198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
	}
	nonPublicIPv6 = []string{
		"::/96",                          // this host, and IPv4 in its oldest form
		"64:ff9b::/96", "64:ff9b:1::/48", // IPv4 behind a translator, private addresses among it
		"2001::/32", "2002::/16", // IPv4 in tunnels
		"fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
	}
)

// networkPolicy lets in whoever asks a worker or the tail worker, and out to the cluster's DNS and public addresses.
func (p Placement) networkPolicy() runtime.Object {
	var ports []networkingv1.NetworkPolicyPort
	for _, w := range p.Bundle.Spec.Workers {
		ports = append(ports, networkingv1.NetworkPolicyPort{
			Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromString(script.PortName(w.WorkerName))),
		})
	}
	ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromString(tailPortName))})
	return &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
		ObjectMeta: p.objectMeta(p.deploymentName(), p.labels()),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: p.labels()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: ports}},
			Egress:      append([]networkingv1.NetworkPolicyEgressRule{dnsEgress(), publicEgress()}, p.Options.Egress...),
		},
	}
}

func dnsEgress() networkingv1.NetworkPolicyEgressRule {
	port := intstr.FromInt32(portDNS)
	return networkingv1.NetworkPolicyEgressRule{
		Ports: []networkingv1.NetworkPolicyPort{
			{Protocol: new(corev1.ProtocolUDP), Port: &port}, {Protocol: new(corev1.ProtocolTCP), Port: &port},
		},
		To: []networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}},
		}},
	}
}

func publicEgress() networkingv1.NetworkPolicyEgressRule {
	return networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{
		{IPBlock: &networkingv1.IPBlock{CIDR: "0.0.0.0/0", Except: nonPublicIPv4}},
		{IPBlock: &networkingv1.IPBlock{CIDR: "::/0", Except: nonPublicIPv6}},
	}}
}

// services are one for each worker. They name the port: its number is another one in the
// pods of another revision.
func (p Placement) services() []runtime.Object {
	all := make([]runtime.Object, 0, len(p.Bundle.Spec.Workers))
	for _, w := range p.Bundle.Spec.Workers {
		all = append(all, &corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: p.objectMeta(script.ServiceName(w.WorkerName), p.workerLabels(w)),
			Spec: corev1.ServiceSpec{
				Type:     corev1.ServiceTypeClusterIP,
				Selector: p.labels(),
				Ports: []corev1.ServicePort{{
					Name: servicePortName, Protocol: corev1.ProtocolTCP, Port: servicePort,
					TargetPort: intstr.FromString(script.PortName(w.WorkerName)),
				}},
			},
		})
	}
	return all
}
