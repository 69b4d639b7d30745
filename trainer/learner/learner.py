"""The torch backend: takes a round's optimiser steps over its samples, in one process or as one of several ranks.

Invariant: the result depends only on the folder, the samples, the settings and the seed. The weight of each token in a
step's loss is known before the first batch, so micro-batches and ranks change only memory and time. A loss or gradient
that is not finite stops all ranks before the step, weights that are not finite stop them before saving. Loading the
files of `save` yields the same bits as staying in memory.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from weir.trainer.credit.samples import Sample
from weir.trainer.data.dataset import SupervisedRow
from weir.trainer.errors import VersionError
from weir.trainer.learner.balanced import balanced
from weir.trainer.learner.critic import Critic
from weir.trainer.learner.distributed import Ranks
from weir.trainer.learner.loading import load_trained, lora_shape
from weir.trainer.learner.off_policy import OffPolicyScores, score_off_policy
from weir.trainer.learner.optimizer import Stepper
from weir.trainer.learner.rank_files import published, read_state, state_tensors, write_state, write_weights
from weir.trainer.learner.round_steps import RoundSteps
from weir.trainer.learner.saved_state import CRITIC, KL_COEF, NUM_STEPS, POLICY, saved_state
from weir.trainer.learner.scoring import Scores, score, score_by
from weir.trainer.learner.step_stats import TokenStats
from weir.trainer.learner.supervised_loss import accumulate_supervised
from weir.trainer.model.batching import lay_out, micro_batches
from weir.trainer.model.lora import adapters_off, merged, save_adapters
from weir.trainer.model.put_away import PutAway, free_bytes, give_back
from weir.trainer.model.routing_replay import RoutingReplay
from weir.trainer.model.shared_files import Published
from weir.trainer.model.stored_tensors import BytesRead
from weir.trainer.model.token_model import choose_device, is_finite, save_model, save_state
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.versions.version_folder import STATE_FILE, FileEntry, num_parameters


class Learner(RoundSteps):
    """The policy, its AdamW and, for GAE, a critic.

    `reference` is the folder of the model for the KL divergence.
    """

    def __init__(
        self,
        folder: Path,
        config: TrainerConfig,
        *,
        reference: Path | None = None,
        ranks: Ranks = Ranks(),
    ) -> None:
        config = config.with_defaults(lambda: num_parameters(folder))
        torch.set_num_threads(config.torch_threads)
        super().__init__(config, choose_device(config.device))
        self.ranks = ranks
        self.folder = folder
        self.reference = reference or folder
        self._saves_without_state = 0
        self._away: PutAway | None = None  # while it sleeps
        self.lora = lora_shape(config)
        self.read = BytesRead()  # of the folder, and with LoRA of its base
        self.model = load_trained(folder, self.reference, config, self.device, ranks, self.read)
        self.layout = self.model.layout(share_prefixes=config.share_prefixes)
        self.critic = None
        if config.advantage == "gae":
            self.critic = Critic(folder, config, self.model, self.device, ranks, self.read)
        if config.routing_replay:  # after the critic, a copy of the model that chooses for itself
            self.model.replay = RoutingReplay(self.model.network)
            self.routed = self.model.replay.shape
        self.stepper = Stepper(self.model, config, lr=config.peak_lr, weight_decay=config.weight_decay, ema=config.ema)
        self._load_state(folder)

    @property
    def num_parameters(self) -> int:
        """Number of weights of the policy."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def num_steps(self) -> int:
        """Optimiser steps taken over all rounds."""
        return self.stepper.num_steps

    @property
    def _steppers(self) -> list[Stepper]:
        return [self.stepper, *([self.critic.stepper] if self.critic is not None else [])]

    def _score_off_policy(self, samples: Sequence[Sample]) -> OffPolicyScores | None:
        return score_off_policy(self.model, samples, self.config, self.device, self.ranks)

    def _score_by_policy(self, samples: Sequence[Sample]) -> Scores:
        routed = self.config.routing_replay
        return score(self.model, samples, self.config, self.device, self.ranks, routed=routed)

    def _score_by_critic(self, samples: Sequence[Sample]) -> Scores | None:
        return None if self.critic is None else self.critic.values(samples)

    def _score_by_reference(self, samples: Sequence[Sample]) -> Scores:
        if self.lora is None:
            return score_by(self.reference, samples, self.config, self.device, self.ranks)
        with adapters_off(self.model):
            return score(self.model, samples, self.config, self.device, self.ranks)

    def accumulate(
        self, samples: Sequence[Sample], fresh_version: int, on_tokens: Callable[[int], None] = lambda _: None
    ) -> TokenStats:
        """Add the gradient of a step's policy loss to the parameters, micro-batch by micro-batch.

        The samples have been scored by `score`. Returns the statistics over all ranks.
        """
        weight_of = self._weights(samples, self.config.loss_mean)
        own = TokenStats()
        routed = self.config.routing_replay
        parts = self.ranks.share(micro_batches(samples, self.config.token_budget, self.layout, routed=routed))
        with balanced(self.model, parts, self.layout, self.device, self.ranks, routed=routed) as balance_loss:
            before: Callable[[], TokenStats] | None = None  # of the micro-batch before: a GPU need not wait for them
            for part, counts in parts:
                weights = [weight_of[sample.call_id] if counts else 0.0 for sample in part]
                read = self._backward(part, weights, fresh_version, counts)
                if before is not None:
                    own.add(before())
                before = read if counts else None
                on_tokens(sum(len(sample.output_ids) for sample in part))
            if before is not None:
                own.add(before())
        stats = TokenStats()
        for of_share in self.ranks.gather_shares(own):
            stats.add(of_share)
        stats.balance_loss = balance_loss
        return stats

    def sleep(self, away: Path, needed_bytes: int | None = None) -> None:
        """Put weights, moments, average and critic off the device until `wake`, as far as others need its memory.

        From a CPU, and with `needed_bytes` None, everything goes; into a file in `away`, from a GPU into the memory of
        the machine. Raises `TrainerError` where there is no room for it.
        """
        for stepper in self._steppers:
            stepper.clear()
        self._old_logprobs = self._reference_logprobs = self._values = self._off_policy = None
        self._credit = {}
        give_back()
        may_stay = 0 if needed_bytes is None else max(0, free_bytes(self.device) - needed_bytes)
        tensors = [tensor for stepper in self._steppers for tensor in stepper.tensors(self.device)]
        self._away = PutAway(tensors, away, may_stay=may_stay)

    def wake(self) -> None:
        """Have everything on the device again, bit for bit. Raises OSError where it cannot be read."""
        if self._away is not None:
            self._away.bring_back()
            self._away = None

    def save(self, folder: Path) -> dict[str, FileEntry]:
        """Write weights, configuration, tokenizer and optimiser states into an existing folder; all ranks call it.

        The optimiser's is written with only each `keep_state_every`th save since the last state. Returns the entries of
        files that are already synced. Raises OSError.
        """
        if self.ranks.shards:
            return self._save_on_ranks(folder)
        weights, own = self.stepper.weights(), self.stepper.state()
        if self.config.kl_target is not None:
            own["kl_coef"] = self.kl_coef
        averaged = self.config.published_weights == "averaged"
        if self.lora is None and (averaged or self.model.compute is not torch.float32):
            own["weights"] = weights  # the stepped ones, which the model files do not hold
        published = self.stepper.averaged_weights() if averaged else weights
        written: dict[str, FileEntry] = {}
        if self.lora is not None:
            others = published if averaged else None
            save_adapters(weights, self.lora, folder, base=self.reference, published=others)
            published = merged(published, self.lora)
        with ThreadPoolExecutor(max_workers=1) as writer:
            writing = writer.submit(save_state, own, folder / STATE_FILE) if self._keeps_state else None
            save_model(self.model, folder, tokenizer_from=self.folder, weights=published)
            if writing is not None:
                written[STATE_FILE] = writing.result()
        if self.critic is not None:
            written |= self.critic.save(folder)
        self._saves_without_state = 0 if self._keeps_state else self._saves_without_state + 1
        return written

    def published(self) -> Published:
        """This rank's part of the weights that `save` publishes; all ranks call it."""
        averaged = self.config.published_weights == "averaged"
        return published(self.model, self.stepper, self.folder, ranks=self.ranks, averaged=averaged, lora=self.lora)

    def _save_on_ranks(self, folder: Path) -> dict[str, FileEntry]:
        """As `save`; every rank writes its own rows."""
        averaged = self.config.published_weights == "averaged"
        write_weights(
            self.model,
            self.stepper,
            folder,
            like_folder=self.folder,
            base=self.reference,
            ranks=self.ranks,
            averaged=averaged,
            lora=self.lora,
        )
        stepped = self.lora is None and (averaged or self.model.compute is not torch.float32)
        tensors = state_tensors(self.stepper, POLICY, weights=stepped)
        if self.config.kl_target is not None:
            tensors[f"{POLICY}/{KL_COEF}"] = torch.tensor(self.kl_coef, dtype=torch.float64)
        if self.critic is not None:
            tensors |= state_tensors(self.critic.stepper, CRITIC, weights=True)
        if self._keeps_state:
            write_state(tensors, folder)
        self._saves_without_state = 0 if self._keeps_state else self._saves_without_state + 1
        return {}

    @property
    def _keeps_state(self) -> bool:
        """Whether the next save writes the optimiser's state."""
        return self._saves_without_state + 1 >= self.config.keep_state_every

    def _weights_are_finite(self) -> bool:
        modules = [self.model, *([self.critic.model] if self.critic is not None else [])]
        return all(self.ranks.gather(all(map(is_finite, modules))))

    def accumulate_mixed(self, rows: Sequence[SupervisedRow]) -> float | None:
        """Add the gradient of the supervised loss to the parameters; returns the loss, None without rows."""
        if not rows:
            return None
        return accumulate_supervised(
            self.model,
            rows,
            token_budget=self.config.token_budget,
            layout=self.layout,
            device=self.device,
            coef=self.config.sft_coef,
            ranks=self.ranks,
        )

    def accumulate_critic(self, samples: Sequence[Sample]) -> float | None:
        """Add the gradient of the critic's loss to its parameters; returns the loss, None without a critic."""
        if self.critic is None:
            return None
        assert self._values is not None
        return self.critic.accumulate(samples, self._weights(samples, "token"), self._credit, self._values)

    def _backward(
        self, samples: Sequence[Sample], weights: Sequence[float], fresh_version: int, counts: bool
    ) -> Callable[[], TokenStats]:
        batch = lay_out(samples, self.layout, self.device, counts=counts, routed=self.config.routing_replay)
        lengths = [len(sample.output_ids) for sample in samples]
        predicted = self.model(batch, self._repeated([sample.temperature for sample in samples], lengths))
        loss, read = self._loss_of(samples, predicted, weights, fresh_version, computed_tokens=batch.num_tokens)
        loss.backward()  # type: ignore[no-untyped-call]
        return read

    def _load_state(self, folder: Path) -> None:
        """Load the folder's state, if it has any, whichever number of processes wrote it."""
        if not self.ranks.shards and (folder / STATE_FILE).exists():
            self._load_own_state(folder / STATE_FILE)
            return
        saved = saved_state(folder, self.read)
        if saved is None:
            return
        try:
            read_state(self.stepper, POLICY, saved)
            if self.critic is not None and f"{CRITIC}/{NUM_STEPS}" in saved:
                read_state(self.critic.stepper, CRITIC, saved)
            if self.config.kl_target is not None and f"{POLICY}/{KL_COEF}" in saved:
                self.kl_coef = float(saved.rows(f"{POLICY}/{KL_COEF}", 0, 1))
        except (OSError, RuntimeError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise VersionError(f"cannot load the optimiser's state from {folder}: {error}") from error

    def _load_own_state(self, file: Path) -> None:
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            if "weights" in state:
                self.stepper.load_weights(state["weights"])
            self.stepper.load(state)
            if self.config.kl_target is not None:
                self.kl_coef = state.get("kl_coef", self.kl_coef)
        except (OSError, RuntimeError, KeyError, ValueError) as error:
            raise VersionError(f"cannot load the optimiser's state from {file}: {error}") from error
