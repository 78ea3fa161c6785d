// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api holds the names that the objects of worker bundles are marked with, on the
// hub and in the clusters. The kinds are in the packages below it, one for each group of
// the design document; they hold types and their generated code, and no behaviour.
package api

const (
	// LabelAccount, on a Namespace, says whose namespace it is: the id of an account. Who
	// may write labels of Namespaces decides that. Copies of it are on what the operator
	// makes for the account.
	LabelAccount = "workers.spokelet.io/account"
	// LabelScript is on what belongs to one script of an account. A Secret without it is none
	// that the script may name.
	LabelScript = "workers.spokelet.io/script"
	// LabelVersion, on a Secret, is the id of the uploaded version that it was made for.
	LabelVersion = "workers.spokelet.io/version"
	// AnnotationDeployment, on a WorkerDeployment, says who deployed it, and when, as JSON.
	// It is of the deployment that its version is of: another template makes it void.
	AnnotationDeployment = "workers.spokelet.io/deployment"
	// LabelClusters, with the value "true" on a ManagedCluster, offers it to accounts.
	LabelClusters = "workers.spokelet.io/clusters"
	// AnnotationClusters, on the Namespace of an account, is a label selector: of the
	// clusters that are offered the account may choose among those. Default: all of them.
	AnnotationClusters = "workers.spokelet.io/clusters"
	// AnnotationHosts, on the Namespace of an account, lists the hosts that the account may
	// choose from, as tenant.ParseHosts reads it. Default: none.
	AnnotationHosts = "workers.spokelet.io/hosts"
	// AnnotationLastImage, on a WorkerBundle, is the image that it had before, which is
	// kept until no cluster needs it.
	AnnotationLastImage = "lastImage"
	// LabelBundle names the WorkerBundle that an object was made for. On what is outside of
	// the account's namespace LabelNamespace says where that is.
	LabelBundle = "workers.spokelet.io/bundle"
	// AnnotationBundle, on a ManifestWork, is the UID of the WorkerBundle that it places. That
	// makes it the operator's, and a policy lets nobody else write it.
	AnnotationBundle = "workers.spokelet.io/bundle-uid"
	// LabelBuilder names the JobBuilder that a Job was made for.
	LabelBuilder = "workers.spokelet.io/builder"
	// LabelNamespace, on what is outside of the account's namespace, names that namespace.
	LabelNamespace = "workers.spokelet.io/namespace"
	// Finalizer holds an object until what was made for it elsewhere is gone.
	Finalizer = "workers.spokelet.io/finalizer"
)

// Conditions of the kinds.
const (
	// ConditionAccepted: the spec can be served as it is.
	ConditionAccepted = "Accepted"
	// ConditionBuilt: there is an image with it.
	ConditionBuilt = "Built"
	// ConditionReady: every cluster serves it.
	ConditionReady = "Ready"
	// ConditionRouted: it is reached by its host. Of a WorkerAccount alone, and only while the
	// operator makes routes.
	ConditionRouted = "Routed"
)

// Reasons of the conditions.
const (
	ReasonAccepted = "Accepted"
	// ReasonInvalid: the message names the field.
	ReasonInvalid = "Invalid"
	// ReasonNoAccount: the namespace has no account, or no WorkerAccount.
	ReasonNoAccount = "NoAccount"
	// ReasonAccountTaken: an older namespace has the account.
	ReasonAccountTaken = "AccountTaken"
	// ReasonNameTaken: another script has the same name for Kubernetes, or another
	// WorkerDeployment the same script.
	ReasonNameTaken = "NameTaken"
	// ReasonSecretMissing: the Secret of secretRef does not exist, or is not labelled as one for
	// the script.
	ReasonSecretMissing = "SecretMissing"
	// ReasonScriptsMissing: nothing is stored there.
	ReasonScriptsMissing = "ScriptsMissing"
	// ReasonStoreUnavailable: the object store does not answer; it is tried again.
	ReasonStoreUnavailable = "StoreUnavailable"

	ReasonBuilt    = "Built"
	ReasonBuilding = "Building"
	// ReasonWaiting: another build of the account is running, or something is missing.
	ReasonWaiting = "Waiting"
	// ReasonRejected: workerd rejects a script; the message is workerd's.
	ReasonRejected = "Rejected"
	// ReasonRetrying: the build failed for a reason that may go; it is tried again.
	ReasonRetrying = "Retrying"

	ReasonServed = "Served"
	// ReasonNoClusters: no cluster is offered and selected.
	ReasonNoClusters = "NoClusters"
	// ReasonClustersNotReady: the message names the first one that is not.
	ReasonClustersNotReady = "ClustersNotReady"
	// ReasonPreviousServed: what was served before is, the message says why.
	ReasonPreviousServed = "PreviousServed"

	ReasonRouted = "Routed"
	// ReasonHostTaken: another account has the host.
	ReasonHostTaken = "HostTaken"
	// ReasonHostNotAllowed: nobody gave the namespace the host.
	ReasonHostNotAllowed = "HostNotAllowed"
	// ReasonNoHost: the account names none, and has no name of its own.
	ReasonNoHost = "NoHost"
)
