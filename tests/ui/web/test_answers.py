"""Pages that are made once for all who look at them."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import HTMLResponse, Response

from weir.ui.web.answers import KEPT_BYTES, Answers


class Page:
    """Counts how often it was made; it is made once the test lets it."""

    def __init__(self, text: str = "<p>page</p>") -> None:
        self.made = 0
        self.may_answer = asyncio.Event()
        self.text = text

    async def __call__(self) -> Response:
        """The text, with the number of the making; an empty text is refused."""
        self.made += 1
        number = self.made
        await self.may_answer.wait()
        if not self.text:
            raise ValueError("nothing to show")
        return HTMLResponse(f"{self.text}{number}")


def test_all_viewers_of_a_page_get_one_answer_until_something_changes() -> None:
    async def look() -> None:
        answers, page = Answers(), Page()
        viewers = [asyncio.create_task(answers.of("then", "/run", page)) for _ in range(50)]
        await asyncio.sleep(0)
        viewers[0].cancel()  # the one who asked first leaves
        page.may_answer.set()
        sent = await asyncio.gather(*viewers[1:])
        assert {one.body for one in sent} == {b"<p>page</p>1"} and page.made == 1
        sent[0].headers["content-encoding"] = "gzip"  # what middleware does to one reaches no other
        again = await answers.of("then", "/run", page)
        assert "content-encoding" not in again.headers and again.headers["content-type"] == "text/html; charset=utf-8"
        assert (again.body, page.made) == (b"<p>page</p>1", 1)
        assert (await answers.of("then", "/run?rounds=1", page)).body == b"<p>page</p>2"
        assert (await answers.of("now", "/run", page)).body == b"<p>page</p>3"

    asyncio.run(look())


def test_a_page_that_was_begun_before_a_change_is_not_kept_for_the_state_after_it() -> None:
    async def look() -> None:
        answers, slow, quick = Answers(), Page("old"), Page("new")
        before = asyncio.create_task(answers.of("then", "/run", slow))
        await asyncio.sleep(0)
        quick.may_answer.set()
        assert (await answers.of("now", "/run", quick)).body == b"new1"
        slow.may_answer.set()
        assert (await before).body == b"old1"
        assert (await answers.of("now", "/run", quick)).body == b"new1" and quick.made == 1

    asyncio.run(look())


def test_a_failure_is_heard_by_all_who_asked_and_not_kept() -> None:
    async def look() -> None:
        answers, page = Answers(), Page("")
        page.may_answer.set()
        heard = await asyncio.gather(*(answers.of("then", "/run", page) for _ in range(3)), return_exceptions=True)
        assert [str(one) for one in heard] == ["nothing to show"] * 3 and page.made == 1
        page.text = "page"
        assert (await answers.of("then", "/run", page)).body == b"page2"

    asyncio.run(look())


@pytest.mark.parametrize("size", [KEPT_BYTES // 2 + 1, KEPT_BYTES + 1])
def test_what_is_kept_is_bounded(size: int) -> None:
    async def look() -> None:
        answers, pages = Answers(), [Page("x" * size) for _ in range(2)]
        for _ in range(2):
            for number, page in enumerate(pages):
                page.may_answer.set()
                await answers.of("then", f"/{number}", page)
        assert [page.made for page in pages] == [2, 2]

    asyncio.run(look())
