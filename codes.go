package caisson

// The codes. Append only: a code that was released keeps its meaning.
const (
	CodeInternal              Code = "internal"
	CodeUsage                 Code = "usage"
	CodeNotFound              Code = "not-found"
	CodeAmbiguous             Code = "ambiguous"
	CodeAlreadyExists         Code = "already-exists"
	CodeConfigInvalid         Code = "config-invalid"
	CodeConfigWidens          Code = "config-widens"
	CodePolicyInvalid         Code = "policy-invalid"
	CodeUnsupported           Code = "unsupported"
	CodeStateInvalid          Code = "state-invalid"
	CodeCancelled             Code = "cancelled"
	CodeDeadline              Code = "deadline"
	CodeInterrupted           Code = "interrupted"
	CodeLedgerBusy            Code = "ledger-busy"
	CodeLedgerDamaged         Code = "ledger-damaged"
	CodeLedgerNewer           Code = "ledger-newer"
	CodeDiskFull              Code = "disk-full"
	CodeWriteFailed           Code = "write-failed"
	CodeLeaseHeld             Code = "lease-held"
	CodeLeaseLost             Code = "lease-lost"
	CodeHolderUnknown         Code = "holder-unknown"
	CodeOrphanAlive           Code = "orphan-alive"
	CodeChainBroken           Code = "chain-broken"
	CodeCallInvalid           Code = "call-invalid"
	CodeCallUnknown           Code = "call-unknown"
	CodeToolUnknown           Code = "tool-unknown"
	CodePrepareUnstable       Code = "prepare-unstable"
	CodeRefused               Code = "refused"
	CodeOutcomeUnknown        Code = "outcome-unknown"
	CodeNotExecuted           Code = "not-executed"
	CodeBudgetExceeded        Code = "budget-exceeded"
	CodeCostUnmeasurable      Code = "cost-unmeasurable"
	CodeReviewAlreadyDecided  Code = "review-already-decided"
	CodeReviewDigestMismatch  Code = "review-digest-mismatch"
	CodeDecisionKindMismatch  Code = "decision-kind-mismatch"
	CodeReviewExpired         Code = "review-expired"
	CodeReviewWithdrawn       Code = "review-withdrawn"
	CodeIsolationUnavailable  Code = "isolation-unavailable"
	CodeSandboxLost           Code = "sandbox-lost"
	CodeGuestMissing          Code = "guest-missing"
	CodeGuestProtocol         Code = "guest-protocol"
	CodeHostFull              Code = "host-full"
	CodePathOutside           Code = "path-outside"
	CodePathInvalid           Code = "path-invalid"
	CodeFileChanged           Code = "file-changed"
	CodeFileNotRead           Code = "file-not-read"
	CodeEditMismatch          Code = "edit-mismatch"
	CodeLimitInvalid          Code = "limit-invalid"
	CodeNoRepository          Code = "no-repository"
	CodeGitMissing            Code = "git-missing"
	CodeGitFailed             Code = "git-failed"
	CodeBaseUnusable          Code = "base-unusable"
	CodeBranchExists          Code = "branch-exists"
	CodeBranchCheckedOut      Code = "branch-checked-out"
	CodeRepositoryUnsupported Code = "repository-unsupported"
	CodeWorkspaceBindingLost  Code = "workspace-binding-lost"
	CodeWorkspaceDirty        Code = "workspace-dirty"
	CodeImportHeld            Code = "import-held"
	CodeMergeConflict         Code = "merge-conflict"
	CodeModelUnknown          Code = "model-unknown"
	CodeModelKeyMissing       Code = "model-key-missing"
	CodeModelError            Code = "model-error"
	CodeModelStalled          Code = "model-stalled"
	CodeScriptInvalid         Code = "script-invalid"
	CodeScriptEnded           Code = "script-ended"
	CodeScriptMismatch        Code = "script-mismatch"
	CodePromptEmpty           Code = "prompt-empty"
	CodeEngineUnavailable     Code = "engine-unavailable"
	CodeImageUnusable         Code = "image-unusable"
	CodeNetworkRefused        Code = "network-refused"
	CodeRepositoryBusy        Code = "repository-busy"
	CodeBusy                  Code = "busy"
	CodeHandoffActive         Code = "handoff-active"
	CodeRequestInvalid        Code = "request-invalid"
	CodeRequestReplayed       Code = "request-replayed"
	CodeRequestExpired        Code = "request-expired"
	CodeGenerationStale       Code = "generation-stale"
	CodeVerbDenied            Code = "verb-denied"
	CodeChannelFull           Code = "channel-full"
	CodeEngineUnknown         Code = "engine-unknown"
	CodeEngineAbsentGCFailed  Code = "engine-absent-gc-failed"
	CodeBrokerUnavailable     Code = "broker-unavailable"
	CodeResultUnknown         Code = "result-unknown"
	CodeTaskConflict          Code = "task-conflict"
	CodeTaskUnfinished        Code = "task-unfinished"
	CodeWorkflowInvalid       Code = "workflow-invalid"
	CodeProgramMissing        Code = "program-missing"
	CodeSandboxPaused         Code = "sandbox-paused"
)

var codeTable = []CodeInfo{
	{CodeInternal, false, 500, 1, "something went wrong that should not", "Report it with the output of `caisson doctor --json`."},
	{CodeUsage, false, 400, 2, "the command line is not right", "See `--help`."},
	{CodeNotFound, false, 404, 1, "no such thing", ""},
	{CodeAmbiguous, false, 409, 1, "the reference fits more than one thing", "Use a longer reference."},
	{CodeAlreadyExists, false, 409, 1, "a thing of that name exists", ""},
	{CodeConfigInvalid, false, 400, 78, "a settings file is not valid", "Correct the file at the line named."},
	{CodeConfigWidens, false, 400, 78, "a repository's settings try to widen what is allowed", "Put the setting into your own config; a repository's may only tighten."},
	{CodePolicyInvalid, false, 400, 78, "a policy file is not valid", "Correct the file at the line named; `caisson policy check` reads it."},
	{CodeUnsupported, false, 501, 1, "not supported on this system", ""},
	{CodeStateInvalid, false, 409, 1, "the move is not allowed from this state", ""},
	{CodeCancelled, false, 409, 130, "it was cancelled", ""},
	{CodeDeadline, false, 504, 124, "its time was over", "Give it more time."},
	{CodeInterrupted, false, 409, 130, "it was interrupted", ""},
	{CodeLedgerBusy, true, 503, 75, "the ledger is locked by another program", "Try again; no other program should hold the ledger for long."},
	{CodeLedgerDamaged, false, 500, 1, "the ledger is damaged", "Keep the file and restore a copy; `caisson audit verify` names the place."},
	{CodeLedgerNewer, false, 500, 78, "the ledger was written by a newer version", "Use that version, or another ledger."},
	{CodeDiskFull, true, 507, 75, "the disk is full", "Free some space; what was recorded is safe."},
	{CodeWriteFailed, true, 500, 75, "a write to disk did not succeed", "Look at the disk; what was recorded is safe."},
	{CodeLeaseHeld, true, 409, 75, "another process drives it", "Wait for it, or attach to it."},
	{CodeLeaseLost, false, 409, 75, "another process has taken it over", "Nothing more was written by this one."},
	{CodeHolderUnknown, false, 409, 75, "whether its last holder lives cannot be told", "If you know that it is gone: `caisson runs resume RUN --take-over --yes`."},
	{CodeOrphanAlive, true, 409, 75, "a process of an earlier life could not be ended", "End it by hand, then try again."},
	{CodeChainBroken, false, 500, 1, "the audit chain is broken", "The record was changed outside Caisson from this event on."},
	{CodeCallInvalid, false, 400, 1, "the call's input is not valid", ""},
	{CodeCallUnknown, false, 404, 1, "no such call, or not of this run", ""},
	{CodeToolUnknown, false, 404, 1, "no such tool", ""},
	{CodePrepareUnstable, false, 409, 1, "preparing the call twice gave two values", "A hook or default of the tool is not stable."},
	{CodeRefused, false, 403, 77, "policy refused it", "`caisson policy check` explains."},
	{CodeOutcomeUnknown, false, 409, 76, "it was begun and nobody saw its end", "Look at what it did before doing it again."},
	{CodeNotExecuted, true, 409, 75, "it was never begun", "Safe to try again."},
	{CodeBudgetExceeded, false, 429, 1, "the budget does not allow it", "Give the run a larger budget."},
	{CodeCostUnmeasurable, false, 400, 78, "a cost budget needs a model whose price is known", "Give the price in config, or a token budget instead."},
	{CodeReviewAlreadyDecided, false, 409, 1, "the review was decided before; the first decision stands", "`caisson review show` shows the decision."},
	{CodeReviewDigestMismatch, false, 409, 1, "the decision is for another value than the review's", "Look at it again with `caisson review show`."},
	{CodeDecisionKindMismatch, false, 400, 2, "a review of this kind cannot be answered so", "`caisson review answer` answers a question, `approve`, `modify` and `reject` decide on a call."},
	{CodeReviewExpired, false, 410, 1, "the time to decide is over", "Resume the run: it asks again."},
	{CodeReviewWithdrawn, false, 410, 1, "the review was withdrawn", "Nothing is to be decided any more."},
	{CodeIsolationUnavailable, false, 503, 78, "a control that was asked for cannot be enforced here", "`caisson doctor` names the fix for this host."},
	{CodeSandboxLost, true, 503, 75, "the sandbox has ended", ""},
	{CodeGuestMissing, false, 500, 78, "the guest program is not there", "Build with `make build`, or put caisson-guest beside caisson."},
	{CodeGuestProtocol, false, 502, 1, "the guest does not keep to the protocol; the sandbox was ended", ""},
	{CodeHostFull, true, 503, 75, "the host has no room for it", "Wait, or give it smaller limits."},
	{CodePathOutside, false, 403, 1, "the path leads outside the workspace", ""},
	{CodePathInvalid, false, 400, 1, "the path cannot be used", ""},
	{CodeFileChanged, false, 409, 1, "the file was changed since it was read", "Read it again."},
	{CodeFileNotRead, false, 409, 1, "the file was not read before", "Read it first."},
	{CodeEditMismatch, false, 409, 1, "the text to replace is not there exactly once", ""},
	{CodeLimitInvalid, false, 400, 78, "a limit is not valid", ""},
	{CodeNoRepository, false, 400, 1, "not in a git repository", "Run it in a git repository."},
	{CodeGitMissing, false, 500, 78, "git was not found or is too old", "Install git 2.39 or newer."},
	{CodeGitFailed, false, 500, 1, "git did not succeed", ""},
	{CodeBaseUnusable, false, 409, 1, "the base cannot be used", "Commit or stash, or name another."},
	{CodeBranchExists, false, 409, 1, "the branch exists", "Choose another name for the branch; the one that exists can be its base."},
	{CodeBranchCheckedOut, false, 409, 1, "the branch is checked out elsewhere", "Choose another branch."},
	{CodeRepositoryUnsupported, false, 400, 1, "the repository has a form that is not supported", ""},
	{CodeWorkspaceBindingLost, true, 409, 75, "the workspace on disk is not the one on record", "See it with `caisson workspace ls`; nothing was followed or changed."},
	{CodeWorkspaceDirty, false, 409, 1, "there are changes that are not committed", "Commit or discard them first."},
	{CodeImportHeld, false, 409, 1, "commits were held back", "See the reason; nothing was lost."},
	{CodeMergeConflict, false, 409, 1, "the merge has conflicts; everything is as it was", "Merge by hand in your checkout."},
	{CodeModelUnknown, false, 400, 78, "no such model or provider", "Write it as provider/model, e.g. anthropic/claude-sonnet-4-5."},
	{CodeModelKeyMissing, false, 400, 78, "the provider's key is not set", "Set the provider's key in the environment, e.g. ANTHROPIC_API_KEY."},
	{CodeModelError, true, 502, 75, "the model's provider did not answer as it should", ""},
	{CodeModelStalled, true, 504, 75, "the model's answer stalled", ""},
	{CodeScriptInvalid, false, 400, 78, "the model script is not valid", "Correct the file, or the name of it."},
	{CodeScriptEnded, false, 400, 1, "the model script has no more turns", ""},
	{CodeScriptMismatch, false, 409, 1, "the model script expected something else", ""},
	{CodePromptEmpty, false, 400, 2, "the prompt is empty", "Say what to do."},
	{CodeEngineUnavailable, true, 503, 75, "the engine does not answer", "Start it; `caisson doctor` tells where it was looked for."},
	{CodeImageUnusable, false, 400, 78, "no sandbox can be made of the image", ""},
	{CodeNetworkRefused, false, 403, 77, "the host may not be reached from inside", "Add it to `network:` in your own config."},
	{CodeRepositoryBusy, true, 503, 75, "another git holds a lock of the repository", "Let it end. Where no git runs, one was killed: remove the file that is named."},
	{CodeBusy, true, 503, 75, "too many requests are under way", "Try again with a new id when one has ended."},
	{CodeHandoffActive, true, 503, 75, "somebody else works in the workspace now", "Try again later."},
	{CodeRequestInvalid, false, 400, 2, "the request is not valid", ""},
	{CodeRequestReplayed, false, 409, 1, "a request of that id was taken before; nothing about it was changed", "Use a new id; `recover` publishes the first one's answer again."},
	{CodeRequestExpired, true, 409, 75, "the request is of another time than the channel's", "Read the status again and send it with a new id."},
	{CodeGenerationStale, false, 410, 1, "the request is for another life of the channel", "Read the identity again."},
	{CodeVerbDenied, false, 403, 77, "there is no such verb, or not for this sandbox", "`caisson-guest ctl verbs --text`, inside, lists those that there are."},
	{CodeChannelFull, false, 507, 1, "the channel has taken as many requests as it may", "`caisson sandbox start --recreate` begins a new generation."},
	{CodeEngineUnknown, true, 503, 75, "the engine does not say whether the sandbox is there", "Start the engine, then try again."},
	{CodeEngineAbsentGCFailed, false, 500, 1, "the sandbox is gone, and not all of it could be cleared away", "`caisson sandbox rm` goes on with it, and says what is in the way."},
	{CodeBrokerUnavailable, true, 503, 75, "nobody took the request", "It was taken back; try again with a new id."},
	{CodeResultUnknown, false, 409, 76, "the request was taken, and its end is not known", "Ask with `recover`; look at what it did before doing it again."},
	{CodeTaskConflict, false, 409, 1, "it does not go together with what the task is", "See it with `caisson task show`."},
	{CodeTaskUnfinished, false, 409, 1, "the task is not finished", "See what is open with `caisson task next`."},
	{CodeWorkflowInvalid, false, 400, 78, "a workflow file is not valid", "Correct the file at the line named."},
	{CodeProgramMissing, false, 404, 1, "the program of a declared verb is not there", "Nothing was done. A person installs it, or corrects `run` of the verb in their config; `caisson doctor` looks for it. If that finds it, `caisson sandbox start` tells where the process that serves the sandbox looks."},
	{CodeSandboxPaused, true, 503, 75, "the sandbox was paused from outside, and does nothing meanwhile", "Let it go on with what paused it; it is not ended by that."},
}
